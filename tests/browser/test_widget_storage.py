"""Browsers that refuse to store data: sandboxed frames, strict privacy settings, a full quota."""

import asyncio

import pytest
from playwright.async_api import Page, expect

from shared.wire.messages import ResponseCreate
from tests.browser.pages import OpenChat, ask
from tests.browser.scripted_gateway import ScriptedGateway

QUESTION = "How does it go?"
FORBID_STORAGE = {
    "access": "Object.defineProperty(window, '{kind}', {{ get() {{ throw new DOMException('', 'SecurityError') }} }})",
    "missing": "Object.defineProperty(window, '{kind}', {{ value: null }})",
    "getItem": "Storage.prototype.getItem = () => {{ throw new DOMException('no', 'SecurityError') }}",
    "setItem": "Storage.prototype.setItem = () => {{ throw new DOMException('full', 'QuotaExceededError') }}",
    "an old library's arrays": "Array.prototype.toJSON = function () {{ return `[${{this.map(String)}}]` }}",
    "removeItem": "Storage.prototype.removeItem = () => {{ throw new DOMException('no', 'SecurityError') }}",
}


@pytest.mark.parametrize("refusal", FORBID_STORAGE)
async def test_a_browser_that_refuses_to_store_still_gets_answers(
    gateway: ScriptedGateway, open_chat: OpenChat, refusal: str
) -> None:
    """A new element in the same page continues the session, and "New chat" ends it."""
    page = await open_chat()
    for kind in ("sessionStorage", "localStorage"):
        await page.add_init_script(FORBID_STORAGE[refusal].format(kind=kind))
    await page.reload()
    await page.get_by_role("button", name="中文").click()
    await page.get_by_role("button", name="English").click()
    answers = page.get_by_role("article", name="Answer")
    await ask(page, QUESTION)
    await expect(answers).to_contain_text("AI answer")
    known = gateway.starts[-1].session_id or f"session-{len(gateway.sessions)}"
    await page.evaluate("document.querySelector('replyline-chat').outerHTML += ''")
    await expect(answers).to_contain_text(f"You asked: {QUESTION}")
    await expect(page.get_by_text("Connected")).to_be_visible()
    assert gateway.starts[-1].session_id == known
    await page.get_by_role("button", name="New chat").click()
    await ask(page, "Another")
    await expect(answers).to_contain_text("You asked: Another")
    await expect_other_session(page, gateway, known)


async def expect_other_session(page: Page, gateway: ScriptedGateway, known: str) -> None:
    await expect(page.get_by_text("Connected")).to_be_visible()
    async with asyncio.timeout(15):
        await gateway.expect(ResponseCreate, 2)
    assert gateway.starts[-1].session_id != known
