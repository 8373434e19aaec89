"""A process's `/metrics`, as a bench reads it."""

import urllib.request


def read_metrics(url: str) -> str:
    """The page's text, now. Waits for the answer: from the event loop by `asyncio.to_thread`."""
    with urllib.request.urlopen(url, timeout=10) as response:  # noqa: S310 - an http address of our own making
        page: bytes = response.read()
    return page.decode()
