"""The page on the real system: real Kafka, real Redis, the real model."""

import asyncio
import re

from playwright.async_api import Page, expect

from tests.browser.pages import OpenChat, ask
from tests.support.shared_system import REAL_MODEL, Running

pytestmark = REAL_MODEL

MODEL_MS = 60_000  # two cores that others use too


async def lengths(page: Page, number: int) -> list[int]:
    """Record the lengths that answer `number` has on the page, until its badge is shown."""
    answer = page.get_by_role("article", name="Answer").nth(number)
    badge = answer.locator(".badge")
    seen: list[int] = []
    async with asyncio.timeout(MODEL_MS / 1_000):
        while not await badge.count():
            seen.append(len(await answer.inner_text()))
            await asyncio.sleep(0)
    return seen


async def test_a_question_in_the_page_is_answered_by_the_model(running: Running, open_chat: OpenChat) -> None:
    """Text grows, then badge, grounding and timings appear; `open_chat` fails on any violation of the page's policy."""
    page = await open_chat(running.gateways[0].page)
    await ask(page, "How do I return an item?")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_be_visible()
    seen = await lengths(page, 0)
    assert len(set(seen)) > 3
    await expect(answer).to_contain_text("AI answer")
    await expect(answer.locator(".basis").first).to_contain_text(re.compile("return", re.IGNORECASE))
    await expect(answer.locator(".facts")).to_be_hidden()
    await answer.locator(".facts-button").click()
    await expect(answer.locator(".facts")).to_be_visible()
    await expect(answer.locator(".facts")).to_contain_text(re.compile("smollm2", re.IGNORECASE))


async def test_the_conversation_continues_and_can_be_stopped(running: Running, open_chat: OpenChat) -> None:
    page = await open_chat(running.gateways[0].page)
    await ask(page, "Where is my order?")
    answers = page.get_by_role("article", name="Answer")
    await expect(answers.first.locator(".badge")).to_be_visible(timeout=MODEL_MS)
    await ask(page, "Please explain everything about delivery in great detail.")
    await expect(answers.nth(1)).to_have_text(re.compile(r"\w{2,}"), timeout=MODEL_MS)
    await page.get_by_role("button", name="Stop answering").click()
    await expect(answers.nth(1)).to_contain_text("Stopped")
    await expect(page.get_by_label("Your question")).to_be_focused()
