"""The page around the chat: keyboard, screen readers, phones, languages, other sites."""

from pathlib import Path

import pytest
from playwright.async_api import Browser, Page, expect

from shared.wire.messages import ResponseCancel, ResponseCreate
from shared.wire.outcome import Grounding
from tests.browser.pages import OpenChat
from tests.browser.scripted_gateway import Script, ScriptedGateway
from tests.browser.static_site import foreign_site

EXAMPLE = Path(__file__).parents[2] / "examples" / "page.html"

PHONE = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
LONG_WORD = "Donaudampfschifffahrtsgesellschaftskapitänsmützenanstecknadelverkäufer" * 2


async def test_a_whole_conversation_by_keyboard_alone(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    """Tab to the input; Enter sends, Shift+Enter does not, Escape stops."""
    gateway.scripts["one\ntwo"] = Script(
        deltas=("Done.",), grounding=(Grounding(id="x", question="Which?", answer="This one."),)
    )
    gateway.scripts["forever"] = Script(deltas=("On and ", "on"), pause_before=1)
    page = await open_chat()
    question = page.get_by_label("Your question")
    await tab_to(page, "#input")
    await page.keyboard.type("one")
    await page.keyboard.press("Shift+Enter")
    await page.keyboard.type("two")
    await page.keyboard.press("Enter")
    answers = page.get_by_role("article", name="Answer")
    await expect(answers.first).to_contain_text("AI answer")
    await tab_to(page, "summary", backwards=True)
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("This one.")).to_be_visible()
    await tab_to(page, "#input")
    await page.keyboard.type("forever")
    await page.keyboard.press("Enter")
    await expect(answers.nth(1)).to_have_text("On and ")
    await page.keyboard.press("Escape")
    await gateway.expect(ResponseCancel)
    await expect(answers.nth(1)).to_contain_text("Stopped")
    await expect(question).to_be_focused()


async def tab_to(page: Page, selector: str, *, backwards: bool = False) -> None:
    """Press Tab until that element has a focus ring, like a keyboard user."""
    for _ in range(30):
        await page.keyboard.press("Shift+Tab" if backwards else "Tab")
        if await page.locator(f"{selector}:focus-visible").count():
            return
    pytest.fail(f"{selector} cannot be reached by Tab")


async def test_enter_that_ends_an_input_method_composition_does_not_send(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    question = page.get_by_label("Your question")
    await question.fill("退货")
    await question.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    await expect(question).to_have_value("退货")
    await question.press("Enter")
    (sent,) = await gateway.expect(ResponseCreate)
    assert sent.input == "退货"


async def test_every_control_has_a_name_and_the_conversation_is_a_log(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await page.get_by_label("Your question").fill("Hello")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
    await expect(page.get_by_role("log", name="Conversation")).to_be_visible()
    await expect(page.get_by_role("region", name="Ask us")).to_match_aria_snapshot("""
        - region "Ask us":
          - heading "Ask us" [level=2]
          - status: Connected
          - button "New chat"
          - log "Conversation":
            - article "You":
              - paragraph: Hello
            - article "Answer":
              - paragraph: "You asked: Hello"
              - text: AI answer
              - group "Was this answer helpful?":
                - button "Helpful"
                - button "Not helpful"
              - 'button "How this answer was made: 2.31 s"'
          - status
          - button "Talk to a person"
          - text: Your question
          - textbox "Your question"
          - button "Send"
          - paragraph: /small and may be wrong/
          - status:
            - paragraph: "You asked: Hello AI answer"
    """)


async def test_screen_readers_get_whole_sentences_and_not_tokens(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts["?"] = Script(
        deltas=("It co", "sts €3.", "50 to send. Free ", "above €60", ". Bye"), pause_before=3
    )
    page = await open_chat()
    await page.get_by_label("Your question").fill("?")
    await page.keyboard.press("Enter")
    said = page.locator("[aria-live=polite] p")
    await expect(page.get_by_role("article", name="Answer")).to_have_text("It costs €3.50 to send. Free ")
    await expect(said).to_have_text(["It costs €3.50 to send."])
    gateway.release()
    await expect(said).to_have_text(["It costs €3.50 to send.", "Free above €60.", "Bye AI answer"])
    await expect(page.get_by_role("log")).to_have_attribute("aria-live", "off")


CONTRASTS = """() => {
  const texts = [];
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const rgba = (color) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = color;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const luminance = (color) => {
    const [r, g, b] = rgba(color).map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const parent = (node) => node.assignedSlot ?? node.parentElement ?? node.getRootNode().host;
  const ground = (node) => {
    for (; node; node = parent(node)) {
      const color = getComputedStyle(node).backgroundColor;
      if (rgba(color)[3] > 0) return color;
    }
  };
  const visit = (root) => {
    for (const node of root.querySelectorAll('*')) {
      if (node.shadowRoot) visit(node.shadowRoot);
      const own = [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim());
      if (!own || !node.checkVisibility() || ['STYLE', 'SCRIPT'].includes(node.tagName)) continue;
      const [a, b] = [luminance(getComputedStyle(node).color), luminance(ground(node))];
      texts.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), node.textContent.trim()]);
    }
  };
  visit(document.body);
  return texts;
}"""


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
async def test_text_contrasts_with_its_background(
    gateway: ScriptedGateway, open_chat: OpenChat, color_scheme: str
) -> None:
    gateway.scripts["?"] = Script(
        deltas=("You have a month.",),
        status="incomplete",
        reason="deadline",
        grounding=(Grounding(id="x", question="How long?", answer="Thirty days."),),
    )
    page = await open_chat(color_scheme=color_scheme)
    await page.get_by_label("Your question").fill("?")
    await page.keyboard.press("Enter")
    await page.get_by_text("Based on: How long?").click()
    await page.get_by_role("button", name="How this answer was made").click()
    contrasts = await page.evaluate(CONTRASTS)
    assert {"Thirty days.", "Cut at the deadline", "First word after"} <= {text for _, text in contrasts}
    assert [text for contrast, text in contrasts if contrast < 4.5] == []


async def test_a_phone_shows_the_input_and_never_scrolls_sideways(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["?"] = Script(deltas=(f"{LONG_WORD}\n\n" * 20,))
    page = await open_chat(**PHONE)
    question = page.get_by_label("Your question")
    await question.fill("?")
    await page.get_by_role("button", name="Send").click()
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_contain_text("AI answer")
    await page.get_by_role("button", name="How this answer was made").click()
    await expect(question).to_be_in_viewport(ratio=1)
    await expect(page.get_by_role("button", name="Send")).to_be_in_viewport(ratio=1)
    await expect(page.get_by_text("small and may be wrong").last).to_be_in_viewport(ratio=1)
    for scroller in (page.locator("html"), page.locator(".log")):
        assert await scroller.evaluate("element => element.scrollWidth <= element.clientWidth")
    assert await question.evaluate("input => parseFloat(getComputedStyle(input).fontSize)") >= 16


async def test_new_text_does_not_scroll_back_a_reader_who_scrolled_up(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["?"] = Script(deltas=("Line.\n\n" * 60, "The end."), pause_before=1)
    page = await open_chat(**PHONE)
    await page.get_by_label("Your question").fill("?")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_text("Line.").nth(59)).to_be_in_viewport()
    await page.locator(".log").evaluate("log => log.scrollTop = 0")
    latest = page.get_by_role("button", name="Jump to the latest message")
    await expect(latest).to_be_visible()
    gateway.release()
    await expect(page.get_by_text("AI answer", exact=True)).to_be_attached()
    assert await page.locator(".log").evaluate("log => log.scrollTop") == 0
    await latest.click()
    await expect(page.get_by_text("AI answer", exact=True)).to_be_in_viewport()
    await expect(latest).to_be_hidden()


async def test_a_chinese_browser_gets_a_chinese_page(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts["怎么退货？"] = Script(deltas=("三十天内可退。",), source="faq")
    page = await open_chat(locale="zh-CN")
    await expect(page).to_have_title("Harbor & Pine · 客户服务")
    await expect(page.get_by_text("可能出错").first).to_be_visible()
    await page.get_by_role("button", name="怎么退货？").click()
    await expect(page.get_by_role("article", name="回答")).to_contain_text("来自帮助中心")
    await expect(page.get_by_role("textbox", name="您的问题")).to_be_focused()


async def test_the_language_is_switched_in_the_page_and_remembered(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await page.get_by_label("Your question").fill("Hello")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
    await page.get_by_role("button", name="中文").click()
    await expect(page.get_by_role("article", name="回答")).to_contain_text("AI 回答")
    await expect(page.get_by_role("button", name="新对话")).to_be_visible()
    await page.reload()
    await expect(page.get_by_role("button", name="新对话")).to_be_visible()
    await page.get_by_role("button", name="English").click()
    await expect(page.get_by_role("button", name="New chat")).to_be_visible()


async def test_the_page_says_that_the_model_is_often_wrong(open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_role("region", name="Please read this first")).to_contain_text("may be wrong")
    await expect(page.get_by_text("small and may be wrong").last).to_be_visible()


async def test_one_script_tag_puts_the_chat_on_another_site(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    """The tag is enough: the chat finds its gateway by the script's own address."""
    tag = f'<script type="module" src="{gateway.origin}/widget/replyline-chat.js" data-auto></script>'
    async with foreign_site(f"<!doctype html><title>Elsewhere</title><h1>Elsewhere</h1>{tag}") as url:
        page = await open_chat(url)
        question = page.get_by_label("Your question")
        await expect(question).to_be_hidden()
        assert gateway.starts == []
        await page.get_by_role("button", name="Open chat").click()
        await expect(question).to_be_focused()
        await page.keyboard.type("Anyone there?")
        await page.keyboard.press("Enter")
        answer = page.get_by_role("article", name="Answer")
        await expect(answer).to_contain_text("You asked: Anyone there?")
        await expect(answer).to_contain_text("AI answer")  # while it is written, Escape stops it
        await page.keyboard.press("Escape")
        await expect(question).to_be_hidden()
        await expect(page.get_by_role("button", name="Open chat")).to_be_focused()


async def test_the_example_page_has_the_chat_in_its_corner(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    html = EXAMPLE.read_text().replace("http://127.0.0.1:8080", gateway.origin)
    async with foreign_site(html) as url:
        page = await open_chat(url)
        await page.get_by_role("button", name="Open chat").click()
        await page.get_by_role("button", name="How do I return something?").click()
        await expect(page.get_by_role("article", name="Answer")).to_contain_text(
            "You asked: How do I return something?"
        )


async def test_an_embedding_site_places_the_element_and_its_styles_do_not_leak_in(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    html = f"""<!doctype html><html lang="zh-Hans"><title>Elsewhere</title>
        <style>* {{ color: red; font-size: 5px; }} button {{ display: none; }}</style>
        <script type="module" src="{gateway.origin}/widget/replyline-chat.js"></script>
        <div style="height: 500px"><replyline-chat heading="Chat mit uns"></replyline-chat></div>"""
    async with foreign_site(html) as url:
        page = await open_chat(url)
        await expect(page.get_by_role("heading", name="Chat mit uns")).to_be_visible()
        send = page.get_by_role("button", name="发送")
        await expect(send).to_be_visible()
        await expect(page.get_by_label("您的问题")).not_to_have_css("font-size", "5px")
        await expect(page.get_by_label("您的问题")).not_to_have_css("color", "rgb(255, 0, 0)")


async def test_suggested_questions_come_from_the_page_in_its_language(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    html = f"""<!doctype html><title>Elsewhere</title>
        <script type="module" src="{gateway.origin}/widget/replyline-chat.js"></script>
        <replyline-chat lang="en">
          <ul slot="suggestions" lang="zh"><li>有 &lt;b&gt; 吗？</li></ul>
          <ul slot="suggestions"><li>Is it <em>warm</em>?</li><li> </li></ul>
        </replyline-chat>
        <replyline-chat id="bare" lang="en"></replyline-chat>"""
    async with foreign_site(html) as url:
        page = await open_chat(url)
        suggested = page.locator("replyline-chat").first.get_by_role("list", name="People often ask")
        await expect(suggested.get_by_role("button")).to_have_text(["Is it warm?"])
        await expect(page.locator("#bare").get_by_role("list")).to_have_count(0)
        await page.evaluate("document.querySelector('replyline-chat').lang = 'zh'")
        await expect(page.get_by_role("list", name="大家常问").get_by_role("button")).to_have_text(
            ["有 <b> 吗？", "Is it warm?"]
        )
        await page.get_by_role("button", name="Is it warm?").click()
        (question,) = await gateway.expect(ResponseCreate)
        assert question.input == "Is it warm?"


async def test_a_page_without_a_secure_context_can_still_ask(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await page.add_init_script("delete Crypto.prototype.randomUUID")
    await page.reload()
    await page.get_by_role("button", name="Do you ship abroad?").click()
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")


async def test_the_content_security_policy_is_in_force(browser: Browser, gateway: ScriptedGateway) -> None:
    """Every other test fails on a violation; this one shows that a violation would be noticed."""
    page = await browser.new_page()
    await page.goto(gateway.origin)
    refused = await page.evaluate(
        """() => new Promise((resolve) => {
            document.addEventListener('securitypolicyviolation', (event) => resolve(event.effectiveDirective));
            document.body.append(Object.assign(document.createElement('img'), {src: 'https://elsewhere.invalid/x.png'}));
        })"""
    )
    assert refused == "img-src"
    await page.close()
