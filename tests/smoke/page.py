"""A customer at the page: Chromium, a question, the answer."""

import os
import shutil
from dataclasses import dataclass

from ops.stack.processes import ServiceError

_ANSWER_MS = 60_000


@dataclass(frozen=True, slots=True)
class Shown:
    text: str
    badge: str


async def ask_in_page(url: str, question: str) -> Shown:
    """What stands on the page when the answer is finished. Raises `ServiceError`."""
    try:
        from playwright.async_api import Error, async_playwright
    except ImportError:
        raise ServiceError("the page needs playwright; run: ops/setup/venv test") from None
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise ServiceError("no Chromium: apt-get install chromium, or name one in the variable CHROMIUM")
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        try:
            page = await browser.new_page(locale="en-GB")
            await page.goto(url)
            await page.get_by_label("Your question").fill(question)
            await page.get_by_role("button", name="Send").click()
            answer = page.get_by_role("article", name="Answer").first
            badge = answer.locator(".badge")
            await badge.wait_for(timeout=_ANSWER_MS)
            return Shown(text=await answer.inner_text(), badge=await badge.inner_text())
        except Error as error:
            raise ServiceError(f"the page at {url}: {error.message.splitlines()[0]}") from None
        finally:
            await browser.close()
