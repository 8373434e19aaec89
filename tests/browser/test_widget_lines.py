"""Connections that die without a close, refusals without an id, and text that cannot be encoded."""

import pytest
from playwright.async_api import expect

from shared.wire.messages import Feedback, HandoffRequest, Ping, ResponseCancel, ResponseCreate, SessionStart
from shared.wire.outcome import ErrorDetail
from tests.browser.pages import OpenChat, ask
from tests.browser.scripted_gateway import Script, ScriptedGateway
from tests.browser.test_widget_connection import watch_sockets

QUESTION = "How does it go?"
UNREADABLE = ErrorDetail(type="invalid_request_error", code="invalid_message", message="unreadable", retryable=False)
SAYS: dict[str, tuple[str, type[ResponseCreate | HandoffRequest | Feedback | ResponseCancel]]] = {
    "question": ("Send", ResponseCreate),
    "person": ("Talk to a person", HandoffRequest),
    "rating": ("Helpful", Feedback),
    "cancel": ("Stop answering", ResponseCancel),
}
PAGE_EVENTS = {
    "online": "window.dispatchEvent(new Event('online'))",
    "pageshow": "window.dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))",
    "visible": "document.dispatchEvent(new Event('visibilitychange'))",
    "resume": "document.dispatchEvent(new Event('resume'))",
}


@pytest.mark.parametrize("said", SAYS)
async def test_a_message_on_a_silent_connection_is_repeated_on_another(
    gateway: ScriptedGateway, open_chat: OpenChat, said: str
) -> None:
    """It is sent within 3 s and with the same event_id; the heartbeat would notice after 50 s."""
    gateway.scripts["forever"] = Script(deltas=("On ", "and on"), pause_before=1)
    page = await open_chat()
    await ask(page, "First")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_contain_text("AI answer")
    if said == "cancel":
        await ask(page, "forever")
        await expect(answer.nth(1)).to_have_text("On ")
    await page.get_by_label("Your question").fill(QUESTION)
    gateway.fall_silent()
    await page.clock.install()
    button, kind = SAYS[said]
    await page.get_by_role("button", name=button, exact=True).click()
    await page.clock.run_for(2_900)
    await gateway.expect(SessionStart, 2)
    await page.clock.run_for(500)
    await gateway.expect(kind, 2 if said == "question" else 1)


async def test_a_slow_but_live_gateway_keeps_its_connection(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    gateway.scripts[QUESTION] = Script(deltas=("Well.",), waits_to_confirm=True)
    sockets = watch_sockets(page)
    await page.clock.install()
    await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 60"))
    await ask(page, QUESTION)
    await gateway.expect(ResponseCreate)
    await gateway.broadcast(Ping())
    await page.clock.run_for(20_000)
    assert sockets == []
    gateway.release()
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("Well.")


async def test_a_silent_gateway_is_retried_with_growing_intervals(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    gateway.scripts[QUESTION] = Script(waits_to_confirm=True)
    await page.clock.install()
    await ask(page, QUESTION)
    await gateway.expect(ResponseCreate)
    for count in (1, 2, 3):
        await page.clock.run_for(2_600 * 2 ** (count - 1))
        await gateway.expect(ResponseCreate, 1 + count)
    assert len(gateway.starts) == 4
    assert len({request.event_id for request in gateway.all(ResponseCreate)}) == 1


@pytest.mark.parametrize("event", PAGE_EVENTS)
async def test_an_answer_resumes_after_the_page_has_slept(
    gateway: ScriptedGateway, open_chat: OpenChat, event: str
) -> None:
    gateway.scripts[QUESTION] = Script(deltas=("On ", "and on."), pause_before=1)
    page = await open_chat()
    await page.clock.install()
    await ask(page, QUESTION)
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_text("On ")
    gateway.fall_silent()
    gateway.release()
    await page.clock.fast_forward(2_000)
    assert len(gateway.starts) == 1
    await page.evaluate(PAGE_EVENTS[event])
    await page.clock.run_for(10)
    await expect(answer).to_contain_text("On and on.")


@pytest.mark.parametrize("event", [PAGE_EVENTS["visible"], PAGE_EVENTS["pageshow"].replace("true", "false")])
async def test_a_look_at_another_tab_and_a_slow_load_cost_no_connection(
    gateway: ScriptedGateway, open_chat: OpenChat, event: str
) -> None:
    """A page is shown when it is loaded, which may be long after the chat has connected."""
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    sockets = watch_sockets(page)
    await page.evaluate(event)
    await ask(page, QUESTION)
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
    assert sockets == []


async def test_a_page_in_the_back_forward_cache_holds_no_connection(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.clock.install()
    await page.evaluate("window.dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    await expect(page.get_by_text("Reconnecting…")).to_be_visible()
    await page.evaluate(PAGE_EVENTS["pageshow"])
    await gateway.expect(SessionStart, 2)
    await expect(page.get_by_text("Connected")).to_be_visible()


async def test_a_question_refused_without_its_id_ends(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    """It is sent once more first, because the refusal may have been for another message."""
    gateway.scripts[QUESTION] = Script(refusal=UNREADABLE, names_refused=False)
    page = await open_chat()
    await ask(page, QUESTION)
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("unreadable")
    await ask(page, "And now?")
    await expect(page.get_by_role("article", name="Answer").nth(1)).to_contain_text("AI answer")
    assert [request.input for request in gateway.all(ResponseCreate)] == [QUESTION, QUESTION, "And now?"]


async def test_half_a_surrogate_pair_is_replaced(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await page.evaluate("delete String.prototype.toWellFormed")
    await page.get_by_label("Your question").evaluate("(input) => (input.value = 'A parcel 📦?'.slice(0, 10) + ' 📦')")
    await page.get_by_role("button", name="Send").click()
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
    await page.evaluate("""async () => {
        const { ReplylineClient } = await import('/widget/replyline-client.js');
        const client = new ReplylineClient({ url: `ws://${location.host}/ws` });
        client.connect();
        client.create('\\ude00 Hi', { metadata: { '\\ud83d': '\\ud83d' }, stop: ['\\ud83d'] });
        await new Promise((resolve) => client.on('done', resolve));
    }""")
    first, second = gateway.all(ResponseCreate)
    assert first.input == "A parcel \ufffd 📦"
    assert (second.input, second.metadata, second.stop) == ("\ufffd Hi", {"\ufffd": "\ufffd"}, ("\ufffd",))
