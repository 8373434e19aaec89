"""A process's `/metrics`, as a bench reads it."""

from ops.stack.own_pages import open_page


def read_metrics(url: str) -> str:
    """The page's text, now. Waits for the answer: from the event loop by `asyncio.to_thread`."""
    with open_page(url, timeout_s=10) as response:
        page: bytes = response.read()
    return page.decode()
