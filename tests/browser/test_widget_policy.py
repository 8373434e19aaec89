"""A customer's view of who answered: the model, the help pages instead, or no one, and then a person is offered."""

import re
from typing import get_args

import msgspec
import pytest
from playwright.async_api import Page, expect

from shared.client.session import AsyncReplyline
from shared.wire.messages import Consent, HandoffRequest, ResponseCreate, SessionStart
from shared.wire.outcome import Grounding, Replaced, Source
from tests.browser.pages import OpenChat
from tests.browser.scripted_gateway import Script, ScriptedGateway

RETURNS = Grounding(id="returns", question="How long can I return it?", answer="You have 30 days. Keep the box.")
WARRANTY = Grounding(id="warranty", question="How long is the warranty?", answer="24 months.")
MODELS, HELPS = "Returns are easy 😀. ", "You have 30 days."


async def ask(page: Page, question: str = "?") -> None:
    await page.locator("textarea").fill(question)
    await page.keyboard.press("Enter")


@pytest.mark.parametrize(
    ("locale", "note"), [("en-GB", "from the help pages"), ("zh-CN", "来自帮助中心")], ids=["en", "zh"]
)
async def test_an_answer_not_by_the_model_is_marked_and_the_mark_survives_a_reload(
    gateway: ScriptedGateway, open_chat: OpenChat, locale: str, note: str
) -> None:
    replaced = (Replaced(offset=len(MODELS), length=len(HELPS), id="returns"),)
    gateway.scripts["?"] = Script(
        deltas=(MODELS, HELPS, "\n\nAsk me."), source="mixed", grounding=(RETURNS,), replaced=replaced
    )
    page = await open_chat(locale=locale)
    await ask(page)
    for _ in range(2):
        await expect(page.locator("mark")).to_have_text(HELPS)
        paragraphs = page.locator(".prose p")
        await expect(paragraphs).to_have_text([f"{MODELS}{HELPS}{note}", "Ask me."])
        await expect(page.locator(".badge.mixed")).to_be_visible()
        await expect(page.locator("summary", has_text=RETURNS.question)).to_be_visible()
        await page.reload()


async def test_an_omitted_sentence_is_indicated(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts["?"] = Script(deltas=("Yes. ",), source="mixed", replaced=(Replaced(offset=5, length=0),))
    page = await open_chat()
    await ask(page)
    await expect(page.locator(".prose")).to_contain_text("Yes. a sentence was left out here")
    await expect(page.locator("mark")).to_have_count(0)


async def test_a_customer_without_an_answer_is_offered_a_person_by_keyboard(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["?"] = Script(deltas=("I don't know that.",), source="unsure")
    page = await open_chat()
    await ask(page)
    answer = page.get_by_role("article", name="Answer")
    await expect(answer.get_by_text("No answer found", exact=True)).to_be_visible()
    await expect(page.locator("[aria-live=polite]")).to_contain_text("No answer found")
    button = page.get_by_role("button", name="Talk to a person")
    await expect(button).to_have_count(1)
    await button.focus()
    await page.keyboard.press("Enter")
    (request,) = await gateway.expect(HandoffRequest)
    assert request.language == "en"
    await expect(button).to_be_hidden()
    await expect(page.get_by_text("A person has been asked to take over.")).to_be_visible()


@pytest.mark.parametrize(
    ("locale", "note"),
    [("en-GB", "it may not answer your question"), ("zh-CN", "未必回答了您的问题")],
    ids=["en", "zh"],
)
async def test_a_quote_is_not_shown_as_an_answer(
    gateway: ScriptedGateway, open_chat: OpenChat, locale: str, note: str
) -> None:
    text = "About “How long can I return it?”: You have 30 days.\n\nA person can help you."
    gateway.scripts["?"] = Script(deltas=(text,), source="quote", grounding=(RETURNS,))
    page = await open_chat(locale=locale)
    await ask(page)
    await expect(page.locator(".badge.quote")).to_contain_text(note)
    await expect(page.locator(".badge.faq")).to_have_count(0)
    await expect(page.locator(".prose .quoted")).to_have_text(text.split("\n\n")[:1])
    await expect(page.locator(".prose .quoted")).not_to_have_css("border-inline-start-width", "0px")
    await expect(page.locator(".basis")).to_have_count(0)
    await expect(page.locator("[aria-live=polite]")).to_contain_text(note)


@pytest.mark.parametrize("source", get_args(Source))
async def test_under_an_answer_is_nothing_that_is_not_there(
    gateway: ScriptedGateway, open_chat: OpenChat, source: Source
) -> None:
    gateway.scripts["?"] = Script(deltas=("Yes.",), source=source, grounding=(RETURNS, WARRANTY))
    page = await open_chat()
    await ask(page)
    await expect(page.locator(".meta")).to_be_visible()
    await expect(page.locator(".foot")).not_to_contain_text(re.compile("null|undefined"))


@pytest.mark.parametrize("source", ["faq", "quote", "model"])
async def test_an_answer_links_to_the_page_of_its_entry(
    gateway: ScriptedGateway, open_chat: OpenChat, source: Source
) -> None:
    text = MODELS if source == "model" else RETURNS.answer
    entry = msgspec.structs.replace(RETURNS, url="https://shop.example/help#returns")
    gateway.scripts["?"] = Script(deltas=(text,), source=source, grounding=(entry, WARRANTY))
    page = await open_chat()
    await ask(page)
    link = page.locator(".basis a")
    await expect(link).to_have_attribute("href", "https://shop.example/help#returns")
    await expect(link).to_have_attribute("rel", "noopener noreferrer")
    await expect(link).to_have_text(RETURNS.question)


@pytest.mark.parametrize(("locale", "neither"), [("en-GB", "None of these"), ("zh-CN", "都不是")])
async def test_a_question_back_has_its_choices_as_buttons_and_one_of_them_asks_it(
    gateway: ScriptedGateway, open_chat: OpenChat, locale: str, neither: str
) -> None:
    text = f"Which of these do you mean?\n1. {RETURNS.question}\n2. {WARRANTY.question}"
    gateway.scripts["?"] = Script(deltas=(text,), source="clarify", grounding=(RETURNS, WARRANTY))
    page = await open_chat(locale=locale)
    await ask(page)
    choices = page.locator(".choices").get_by_role("button")
    for _ in range(2):
        await expect(choices).to_have_text([RETURNS.question, WARRANTY.question, neither])
        await expect(page.locator(".prose")).to_have_text("Which of these do you mean?")
        await expect(page.locator(".basis")).to_have_count(0)
        await page.reload()
    await choices.nth(1).focus()
    await page.keyboard.press("Enter")
    *_, chosen = await gateway.expect(ResponseCreate, 2)
    assert chosen.input == WARRANTY.question


async def test_a_question_back_links_to_the_pages_of_the_entries_that_have_one(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    paged = msgspec.structs.replace(RETURNS, url="https://shop.example/returns")
    gateway.scripts["?"] = Script(deltas=("Which?\n1. A\n2. B",), source="clarify", grounding=(paged, WARRANTY))
    page = await open_chat()
    await ask(page)
    link = page.locator(".basis").get_by_role("link")
    await expect(link).to_have_text(re.compile(re.escape(RETURNS.question)))
    await expect(link).to_have_attribute("href", "https://shop.example/returns")
    await expect(page.locator(".choices").get_by_role("button")).to_have_count(3)


@pytest.mark.parametrize("source", ["unsure", "courtesy"])
async def test_no_person_is_offered_without_people_and_only_an_answer_with_text_is_rated(
    gateway: ScriptedGateway, open_chat: OpenChat, source: Source
) -> None:
    gateway.scripts["?"] = Script(deltas=("So it is.",), source=source)
    gateway.offers_handoff = False
    page = await open_chat()
    await ask(page)
    answer = page.get_by_role("article", name="Answer")
    await expect(answer.locator(".badge")).to_be_visible()
    await expect(page.get_by_role("button", name="Talk to a person")).to_be_hidden()
    await expect(answer.get_by_role("group", name="Was this answer helpful?")).to_have_count(0)


async def test_consent_is_sent_at_each_connect_if_the_page_has_it_and_is_withdrawn_once(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    for number, consents in enumerate((True, False, False), 2):
        await expect(page.get_by_text("Connected")).to_be_visible()
        await page.evaluate(
            "on => document.querySelector('replyline-chat').toggleAttribute('data-consent-training', on)", consents
        )
        await gateway.hang_up(4001)
        await gateway.expect(SessionStart, number)
    sent = [start.consent for start in gateway.starts]
    assert sent == [None, Consent(training=True), Consent(training=False), None]


async def test_consent_is_sent_by_the_terminal_client(gateway: ScriptedGateway) -> None:
    url = f"{gateway.origin.replace('http', 'ws')}/ws"
    async with AsyncReplyline(url, codec="chat.v1.json", consent=Consent(training=True)):
        (start,) = await gateway.expect(SessionStart)
    assert start.consent == Consent(training=True)
