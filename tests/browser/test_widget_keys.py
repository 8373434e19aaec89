"""Keys: those of an input method reach only the input method, and keys typed into the chat do not trigger the page's
shortcuts.
"""

import pytest
from playwright.async_api import Page, expect

from shared.wire.messages import ResponseCreate
from tests.browser.pages import OpenChat, ask
from tests.browser.scripted_gateway import Script, ScriptedGateway
from tests.browser.shops import SHOPS
from tests.browser.static_site import foreign_site

COMPOSING: dict[str, dict[str, object]] = {
    "most browsers": {"isComposing": True},
    "Safari": {"isComposing": False, "keyCode": 229, "which": 229},
}
# A page's shortcuts: in the bubbling phase, as libraries listen, and in the capturing phase, which ends at the chat.
SHORTCUTS = """() => {
  window.heard = [];
  window.captured = [];
  const types = 'keydown keypress keyup beforeinput input paste copy cut compositionstart compositionend'.split(' ');
  for (const type of types) {
    for (const target of [window, document, document.body]) {
      target.addEventListener(type, (event) => heard.push(`${type} ${event.key ?? ''}`));
    }
    window.addEventListener(type, ({ target }) => captured.push([target.tagName, target.isContentEditable]), true);
  }
}"""


async def open_panel(page: Page) -> None:
    await page.get_by_role("button", name="Open chat").click()
    await expect(page.get_by_label("Your question")).to_be_focused()


async def press_while_composing(page: Page, key: str, flags: dict[str, object]) -> bool:
    """Return whether the chat ignored the key, so that the input method gets it."""
    untouched: bool = await page.get_by_label("Your question").evaluate(
        """(input, init) => {
            for (const type of ['compositionstart', 'compositionend']) input.dispatchEvent(new CompositionEvent(type));
            return input.dispatchEvent(new KeyboardEvent('keydown', init));
        }""",
        {"key": key, "bubbles": True, "composed": True, "cancelable": True, **flags},
    )
    return untouched


@pytest.mark.parametrize("browser_kind", COMPOSING)
async def test_an_input_methods_key_neither_sends_nor_stops_nor_closes(
    gateway: ScriptedGateway, open_chat: OpenChat, browser_kind: str
) -> None:
    gateway.scripts["forever"] = Script(deltas=("On ", "and on"), pause_before=1)
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await open_panel(page)
        await page.keyboard.type("退款要d")
        for key in ("Enter", "Escape"):  # sends, and closes the panel
            assert await press_while_composing(page, key, COMPOSING[browser_kind])
        await expect(page.get_by_label("Your question")).to_have_value("退款要d")
        await ask(page, "forever")
        await expect(page.get_by_role("article", name="Answer")).to_have_text("On ")
        assert await press_while_composing(page, "Escape", COMPOSING[browser_kind])  # stops the answer
        assert not await press_while_composing(page, "Escape", {})
        await expect(page.get_by_role("article", name="Answer")).to_contain_text("Stopped")
    assert [request.input for request in gateway.all(ResponseCreate)] == ["forever"]


async def test_keys_typed_into_the_chat_do_not_reach_the_pages_shortcuts(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await open_panel(page)
        await page.evaluate(SHORTCUTS)
        await page.keyboard.type("s/?")
        for keys in ("Control+a", "Control+c", "Control+x", "Control+v", "Control+k", "Shift+Enter", "Enter"):
            await page.keyboard.press(keys)
        await expect(page.get_by_role("article", name="Answer")).to_contain_text("You asked: s/?")
        await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
        await page.keyboard.press("Tab")
        await page.keyboard.press("x")
        await page.keyboard.press("Escape")
        await expect(page.get_by_role("button", name="Open chat")).to_be_focused()
        assert await page.evaluate("heard") == []
        # A capturing listener on the window runs first: it sees a text field, as for any other.
        captured = await page.evaluate("captured")
        assert captured[0] == ["REPLYLINE-CHAT", True]
        assert captured[-1] == ["REPLYLINE-CHAT", False]
        await page.evaluate("document.activeElement.blur()")
        await page.keyboard.press("s")
        assert "keydown s" in await page.evaluate("heard")


async def test_the_pages_own_controls_in_the_chat_receive_their_keys(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    script = f'<script type="module" src="{gateway.origin}/widget/replyline-chat.js"></script>'
    body = "<replyline-chat><p slot=note><button id=own>More</button></p></replyline-chat>"
    async with foreign_site(f"<!doctype html><title>Shop</title>{script}<body>{body}") as url:
        page = await open_chat(url)
        await expect(page.get_by_text("Connected")).to_be_visible()
        await page.evaluate(SHORTCUTS)
        await page.locator("#own").focus()
        await page.keyboard.press("s")
        assert "keydown s" in await page.evaluate("heard")


async def test_the_browsers_own_shortcuts_keep_working(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await open_panel(page)
        for key in ("f", "l", "t", "+"):
            assert await press_while_composing(page, key, {"ctrlKey": True})
        assert await press_while_composing(page, "F5", {})
