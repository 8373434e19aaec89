"""The chat on typical shop pages: it is usable and legible there, and survives a page replacement."""

import re
from pathlib import Path

import pytest
from playwright.async_api import FrameLocator, Locator, Page, expect

from shared.wire.messages import ResponseCreate
from tests.browser.pages import OpenChat
from tests.browser.scripted_gateway import Script, ScriptedGateway
from tests.browser.shops import SHOPS, Shop
from tests.browser.static_site import foreign_site
from tests.browser.test_widget_page import CONTRASTS

TEXTS = (".panel", ".prose p", ".question p", "textarea")
LONG = Script(deltas=("Line.\n\n" * 60,))

PAGE = (Path(__file__).parents[2] / "docs" / "widget.md").read_text()
SNIPPETS = [(found[1], found[2]) for found in re.finditer(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)]
TAG = '<script type="module" src="https://chat.example/widget/replyline-chat.js"></script>'
AROUND = {
    "html": "{code}",
    "css": "<style>{code}</style><replyline-chat></replyline-chat>",
    "js": "<p id=said></p><script type=module>const said = document.querySelector('#said'); const show = (text) => "
    "said.textContent = text; const finish = ({{ status }}) => said.append(' ' + status); {code}</script>",
}

# Page replacements by frameworks. `swap` is a new body, as in the shop's next page.
SWAPS = {
    "replaced body": "document.body.replaceWith(swap())",
    "replaced body, of the root": "document.documentElement.replaceChild(swap(), document.body)",
    "replaced root": """const root = document.createElement('html'); root.append(swap());
        document.documentElement.replaceWith(root)""",
    "innerHTML": "document.body.innerHTML = '<h1>Next</h1>'",
    "hydration": "chat.parentNode.removeChild(chat)",
    "preview, then the page": "document.body.replaceWith(swap()); await 0; document.body.replaceWith(swap())",
    "morph": """for (const node of [...document.body.children])
        if (!node.hasAttribute("data-turbo-permanent")) node.remove();
        document.body.prepend(...swap().children)""",
    "no body for a while": """document.body.remove(); await new Promise((resolve) => setTimeout(resolve, 50));
        document.documentElement.append(swap())""",
    "snapshot as nodes": """const snapshot = document.body.cloneNode(true); document.body.replaceWith(swap());
        await new Promise((resolve) => setTimeout(resolve, 150)); document.body.replaceWith(snapshot)""",
    "snapshot as text": """const snapshot = document.body.outerHTML; document.body.replaceWith(swap());
        await new Promise((resolve) => setTimeout(resolve, 150)); document.body.outerHTML = snapshot""",
    "moved": "const main = document.createElement('main'); document.body.append(main); main.append(chat)",
    "scripts run again": """const { src } = document.querySelector('[data-auto][src]');
        document.body.replaceWith(swap());
        for (const query of ['', '?v=2']) await new Promise((resolve) => {
          const again = document.createElement('script');
          Object.assign(again, { type: 'module', src: src + query, onload: resolve }); again.dataset.auto = '';
          document.body.append(again);
        })""",
    "document.write": "document.open(); document.write('<!doctype html><h1>Next</h1>'); document.close()",
}
SWAP = """async () => {{
  const chat = document.querySelector('replyline-chat');
  const swap = () => {{
    const body = document.createElement('body');
    body.innerHTML = '<h1>Next</h1><p>Washed once.</p>';
    return body;
  }};
  {swap};
  await new Promise((resolve) => setTimeout(resolve, 200));
}}"""
STATE = """() => {
  const chats = document.querySelectorAll('replyline-chat');
  const root = chats[0]?.shadowRoot;
  const input = root?.querySelector('textarea');
  return {
    chats: chats.length, in_body: chats[0]?.closest('body') !== null, open: chats[0]?.hasAttribute('open'),
    draft: input?.value, caret: input?.selectionStart, focused: root?.activeElement?.tagName,
    scrolled: Math.round(root?.querySelector('.log').scrollTop), answers: root?.querySelectorAll('.answer').length,
  };
}"""
BOX = """(element) => {
  const { left, top, right, bottom, width } = element.getBoundingClientRect();
  return left >= 0 && top >= 0 && right <= innerWidth && bottom <= innerHeight && width > 30;
}"""


async def open_shop(shop: Shop, gateway: ScriptedGateway, open_chat: OpenChat, url: str) -> Page:
    page = await open_chat("about:blank", **shop.options)
    if shop.script:
        await page.add_init_script(shop.script)
    await page.goto(url)
    return page


async def ask_in(place: Page | FrameLocator, question: str, number: int = 0, *, clicks: bool = False) -> Locator:
    await place.get_by_label("Your question").fill(question)
    if clicks:
        await place.get_by_role("button", name="Send").click()
    else:
        await place.get_by_label("Your question").press("Enter")
    answer = place.get_by_role("article", name="Answer").nth(number)
    await expect(answer).to_contain_text("AI answer")
    return answer


@pytest.mark.parametrize("name", SHOPS)
async def test_the_chat_is_usable_and_legible(
    gateway: ScriptedGateway, open_chat: OpenChat, tmp_path: Path, name: str
) -> None:
    """It saves a screenshot in pytest's folder."""
    shop = SHOPS[name]
    async with foreign_site(shop.page(gateway.origin), shop.policy_for(gateway.origin)) as url:
        page = await open_shop(shop, gateway, open_chat, url)
        place = page.frame_locator("iframe") if shop.framed else page
        launcher = place.get_by_role("button", name="Open chat")
        assert await launcher.evaluate(BOX)
        await launcher.click()
        answer = await ask_in(place, "Is it warm?")
        await page.screenshot(path=tmp_path / f"{name}.png")
        await expect(answer.locator(".prose")).to_be_in_viewport(ratio=1)
        for control in ("Send", "Close chat"):
            assert await place.get_by_role("button", name=control).evaluate(BOX)
        for text in TEXTS:
            style = "(e) => (({ fontSize, letterSpacing, textTransform, direction }) => "
            style += "[fontSize, letterSpacing, textTransform, direction])(getComputedStyle(e))"
            assert await place.locator(text).first.evaluate(style) == ["16px", "normal", "none", "ltr"], text
        contrasts = await place.locator("replyline-chat").evaluate(CONTRASTS)
        shadow = [(contrast, text) for contrast, text in contrasts if "Is it warm?" in text]
        assert min(contrast for contrast, _ in shadow) >= 4.5
        await place.locator("body").evaluate("(body) => body.replaceWith(document.createElement('body'))")
        await expect(answer).to_contain_text("AI answer")
        await ask_in(place, "And now?", 1, clicks=True)
    assert [request.input for request in gateway.all(ResponseCreate)] == ["Is it warm?", "And now?"]


@pytest.mark.parametrize("name", SWAPS)
async def test_the_chat_is_unchanged_when_the_page_is_replaced(
    gateway: ScriptedGateway, open_chat: OpenChat, name: str
) -> None:
    gateway.scripts["long"] = LONG
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await page.get_by_role("button", name="Open chat").click()
        await ask_in(page, "long")
        await page.locator(".log").evaluate("log => log.scrollTop = 40")
        await expect(page.get_by_role("button", name="Jump to the latest message")).to_be_visible()
        await page.get_by_label("Your question").type("Half a question")
        await page.keyboard.press("ArrowLeft")
        before = await page.evaluate(STATE)
        await page.evaluate(SWAP.format(swap=SWAPS[name]))
        after = await page.evaluate(STATE)
        if name == "document.write":  # a new element, because the page's listeners are gone
            before, after = ({**state, "scrolled": 0, "caret": 0} for state in (before, after))
        assert after == before
        assert before["draft"] == "Half a question"
        assert before["focused"] == "TEXTAREA"
        assert len(gateway.starts) == (2 if name == "document.write" else 1)
        await ask_in(page, "And now?", 1)


async def test_the_wheel_the_pointer_and_selections_in_the_chat_are_its_own(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["long"] = LONG
    async with foreign_site(SHOPS["overbearing"].page(gateway.origin)) as url:
        page = await open_shop(SHOPS["overbearing"], gateway, open_chat, url)
        await page.get_by_role("button", name="Open chat").click()
        await ask_in(page, "long")
        log = page.get_by_role("log")
        end = await log.evaluate("log => log.scrollTop")
        await log.hover()
        await page.mouse.wheel(0, -300)
        await page.wait_for_function("([log, end]) => log.scrollTop < end", arg=[await log.element_handle(), end])
        await log.get_by_text("Line.").last.click(click_count=3)
        assert await page.evaluate("getSelection().toString()") != ""
        await page.get_by_label("Your question").click()
        await expect(page.get_by_label("Your question")).to_be_focused()


async def test_a_printed_page_is_without_the_chat_in_its_corner(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await expect(page.get_by_role("button", name="Open chat")).to_be_visible()
        await page.emulate_media(media="print")
        await expect(page.get_by_role("button", name="Open chat")).to_be_hidden()


async def test_a_redirected_script_inserts_the_chat(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    """As from http to https."""
    script = f"{gateway.origin}/widget/replyline-chat.js"
    tag = '<script type="module" src="/old/replyline-chat.js?v=2" data-auto></script>'
    async with foreign_site(
        f"<!doctype html><title>Shop</title>{tag}", moved={"/old/replyline-chat.js": script}
    ) as url:
        page = await open_chat(url)
        await page.get_by_role("button", name="Open chat").click()
        await ask_in(page, "Is it warm?")


async def test_a_folded_chat_stays_folded_and_an_open_one_open_on_the_next_page(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        launcher = page.get_by_role("button", name="Open chat")
        await page.evaluate(SWAP.format(swap=SWAPS["replaced body"]))
        await expect(launcher).to_be_visible()
        assert gateway.starts == []
        await launcher.click()
        await page.get_by_label("Your question").type("Half a question")
        await page.reload()
        await expect(page.get_by_label("Your question")).to_have_value("Half a question")
        await expect(page.get_by_text("Connected")).to_be_visible()
        await page.keyboard.press("Tab")
        await page.get_by_role("button", name="Close chat").click()
        await page.reload()
        await expect(launcher).to_be_visible()


async def test_a_chat_removed_by_the_page_stays_away_until_it_is_inserted_again(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await page.get_by_role("button", name="Open chat").click()
        await ask_in(page, "long")
        await page.evaluate(
            "window.chat = document.querySelector('replyline-chat'); snapshot = document.body.outerHTML"
        )
        await page.evaluate("window.chat.remove()")
        for swap in (SWAPS["innerHTML"], SWAPS["scripts run again"], "document.body.outerHTML = snapshot"):
            await page.evaluate(SWAP.format(swap=swap))
            assert (await page.evaluate(STATE))["chats"] == 0
        await page.evaluate("document.body.append(window.chat)")
        await ask_in(page, "And now?", 1)
        await page.evaluate(SWAP.format(swap=SWAPS["innerHTML"]))
        assert (await page.evaluate(STATE))["chats"] == 1


async def test_a_script_that_always_removes_the_chat_does_not_hang_the_page(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    async with foreign_site(SHOPS["plain"].page(gateway.origin)) as url:
        page = await open_chat(url)
        await page.get_by_role("button", name="Open chat").click()
        removals = await page.evaluate("""() => new Promise((resolve) => {
            let removals = 0;
            const remove = () => {
              const chat = document.querySelector('replyline-chat');
              if (chat && ++removals) chat.parentNode.removeChild(chat);
            };
            new MutationObserver(remove).observe(document, { childList: true, subtree: true });
            remove();
            setTimeout(() => resolve(removals), 1000);
        })""")
        assert removals < 20


async def test_an_element_placed_by_the_page_is_removed_with_it_and_its_successor_continues(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    script = f'<script type="module" src="{gateway.origin}/widget/replyline-chat.js" data-auto></script>'
    async with foreign_site(f"<!doctype html><title>Shop</title>{script}<replyline-chat></replyline-chat>") as url:
        page = await open_chat(url)
        await ask_in(page, "Is it warm?")
        await page.get_by_label("Your question").type("Half a question")
        await page.evaluate("window.html = document.body.innerHTML; document.body.innerHTML = ''")
        await expect(page.locator("replyline-chat")).to_have_count(0)
        await page.evaluate("document.body.innerHTML = window.html")
        await expect(page.get_by_label("Your question")).to_have_value("Half a question")
        await ask_in(page, "And now?", 1)
        assert len(gateway.sessions) == 1


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
async def test_a_snippet_of_the_page_about_the_widget_works_as_printed(
    gateway: ScriptedGateway, open_chat: OpenChat, number: int
) -> None:
    """Typed into another shop's page, where chat.example is the gateway; the shop signs the tokens."""
    language, code = SNIPPETS[number]
    html = AROUND[language].format(code=code)
    html = (html if "/widget/" in html else html + TAG).replace("https://chat.example", gateway.origin)
    html = html.replace("wss://chat.example", gateway.origin.replace("http", "ws"))
    async with foreign_site(f"<!doctype html><html lang=en><title>Shop</title><body>{html}") as url:
        page = await open_chat("about:blank")
        await page.route("**/chat-token", lambda route: route.fulfill(body="the-token\n"))
        await page.goto(url)
        if language == "js":
            await expect(page.locator("#said")).to_have_text(re.compile(r".+ completed$"))
        else:
            if "data-auto" in code:
                await page.get_by_role("button", name="Open chat").click()
            await ask_in(page, "Do you ship abroad?")
        if language == "css":
            color = await page.locator(".send").first.evaluate("(button) => getComputedStyle(button).backgroundColor")
            assert color == "rgb(122, 31, 61)"
    assert [request.input for request in gateway.all(ResponseCreate)] == ["Do you ship abroad?"]
    assert [start.token for start in gateway.starts] == [
        "the-token" if "token" in code and language == "html" else None
    ]
