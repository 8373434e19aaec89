"""Text from a model, help pages, a server or another customer is shown as text, even if it resembles markup."""

from typing import Any

import pytest
from playwright.async_api import Browser, Page, expect

from shared.wire.outcome import ErrorDetail, Grounding
from tests.browser.pages import OpenChat
from tests.browser.payloads import PAYLOADS
from tests.browser.scripted_gateway import Script, ScriptedGateway
from tests.browser.static_site import foreign_site
from tests.support.reliability import Reliability

PART = 20
SURROGATES = [0xD83D, *b"<img src=x onerror=window.pwned=1>", 0xDC00]  # UTF-16 surrogates without their other half

OTHER_ELEMENTS = """() => {
  const ours = 'ARTICLE P DIV FOOTER SPAN BUTTON DETAILS SUMMARY DL DT DD svg path'.split(' ');
  const elements = document.querySelector('replyline-chat').shadowRoot.querySelector('.log').querySelectorAll('*');
  return [...new Set([...elements].map((element) => element.tagName))].filter((tag) => !ours.includes(tag));
}"""
SHOWN = """() => {
  const log = document.querySelector('replyline-chat').shadowRoot.querySelector('.log');
  const texts = (selector) => [...log.querySelectorAll(selector)].map((element) => element.textContent);
  return {
    question: texts('.question p'),
    answer: texts('.prose p'),
    entry_question: texts('.basis summary'),
    entry_answer: texts('.basis > p'),
    error: texts('.error p'),
  };
}"""
RUN_AS_MARKUP = """async ([payloads, wanted]) => {
  const frames = payloads.map((payload) => {
    const frame = document.createElement('iframe');
    frame.srcdoc = payload;
    document.body.append(frame);
    return frame;
  });
  await Promise.all(frames.map((frame) => new Promise((resolve) => (frame.onload = resolve))));
  const ran = () => frames.filter((frame) => frame.contentWindow.pwned).length;
  for (let tries = 0; tries < 100 && ran() < wanted; tries++) await new Promise((resolve) => setTimeout(resolve, 100));
  return ran();
}"""
PLANT_IN_THE_HISTORY = """(units) => {
  const text = String.fromCharCode(...units);
  const key = Object.keys(sessionStorage).find((key) => key.startsWith('replyline:turns:'));
  const turns = JSON.parse(sessionStorage.getItem(key));
  const response = {...turns[0].response, status: 'completed', output_text: text, grounding: []};
  sessionStorage.setItem(key, JSON.stringify([...turns, {event_id: 'planted', question: text, response}]));
}"""
IS_SHOWN_AS_PLANTED = """(units) => {
  const log = document.querySelector('replyline-chat').shadowRoot.querySelector('.log');
  const texts = [...log.querySelectorAll('.question p, .prose p')].map((element) => element.textContent);
  return texts.filter((text) => text === String.fromCharCode(...units)).length;
}"""


def typed(number: int, payload: str) -> str:
    """Return as much of it as the input accepts: 4,000 characters without control characters."""
    return f"{number}: {''.join(character for character in payload if character >= ' ')}"[:4_000]


def scripted(payload: str) -> Script:
    """Return an answer that fails half way, so that it contains every text a server can send."""
    middle = len(payload) // 2
    return Script(
        deltas=(payload[:middle], payload[middle:]),
        status="failed",
        reason="internal",
        error=ErrorDetail(type="server_error", code=payload, message=payload, retryable=False),
        grounding=(Grounding(id="x", question=payload, answer=f"Entry: {payload}"),),
    )


def expected(payloads: tuple[str, ...]) -> dict[str, list[str]]:
    texts = list(payloads)
    return {
        "question": [typed(number, text) for number, text in enumerate(texts)],
        "answer": texts,
        "entry_question": [f"Based on: {text}" for text in texts],
        "entry_answer": [f"Entry: {text}" for text in texts],
        "error": texts,
    }


async def is_harmless(page: Page) -> bool:
    return await page.evaluate("window.pwned") is None and await page.evaluate(OTHER_ELEMENTS) == []


@pytest.mark.promise(23)
async def test_markup_from_a_server_is_text(
    gateway: ScriptedGateway, open_chat: OpenChat, reliability: Reliability
) -> None:
    """The page has no policy that would stop it. Markup is in the answer while it streams, the help entry, the error
    and the question, and again after a reload has restored them.
    """
    payloads = PAYLOADS if reliability.whole else PAYLOADS[:: len(PAYLOADS) // PART]
    script = f'<script type="module" src="{gateway.origin}/widget/replyline-chat.js"></script>'
    async with foreign_site(f"<!doctype html>{script}<replyline-chat lang=en></replyline-chat>") as url:
        page = await open_chat(url)
        question, answers = page.get_by_label("Your question"), page.get_by_role("article", name="Answer")
        for number, payload in enumerate(payloads):
            gateway.scripts[typed(number, payload)] = scripted(payload)
            await question.fill(typed(number, payload))
            await question.press("Enter")
            await expect(answers.nth(number).locator(".error")).to_be_attached()
        assert await page.evaluate(SHOWN) == expected(payloads)
        assert await is_harmless(page)
        await page.evaluate(PLANT_IN_THE_HISTORY, SURROGATES)
        await page.reload()
        await expect(answers).to_have_count(len(payloads) + 1)
        restored: dict[str, Any] = await page.evaluate(SHOWN)
        assert {place: texts[: len(payloads)] for place, texts in restored.items()} == expected(payloads)
        assert await page.evaluate(IS_SHOWN_AS_PLANTED, SURROGATES) == 2
        harmless = await is_harmless(page)
    reliability.found(
        figure=f"{len(payloads)} payloads, {0 if harmless else 'some'} executed, each shown as it was sent",
        target="100 payloads in a real browser, 0 executed",
        holds=harmless and len(payloads) >= reliability.amount(100, part=PART),
    )


async def test_the_payloads_run_when_inserted_as_markup(browser: Browser) -> None:
    """The control. The others need a click, a gesture, or a template engine."""
    async with foreign_site("<!doctype html>") as url:
        page = await browser.new_page()
        await page.goto(url)
        assert await page.evaluate(RUN_AS_MARKUP, [list(PAYLOADS), 30]) >= 30
        await page.close()
