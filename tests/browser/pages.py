"""Shared data of the browser tests, and their common steps in a page."""

from collections.abc import Awaitable, Callable

from playwright.async_api import Page

OpenChat = Callable[..., Awaitable[Page]]
"""Opens a page: by default that of the scripted gateway."""


async def ask(page: Page, question: str = "?") -> None:
    """Type the text, and send it when the previous answer is done."""
    await page.get_by_label("Your question").fill(question)
    await page.get_by_role("button", name="Send").click()
