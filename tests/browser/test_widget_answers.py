"""A customer's view of one question and its answer."""

from playwright.async_api import expect

from shared.wire.messages import ResponseCancel, ResponseCreate, SessionDelete
from shared.wire.outcome import ErrorDetail, Grounding
from tests.browser.pages import OpenChat, ask
from tests.browser.scripted_gateway import Script, ScriptedGateway

RETURNS = Grounding(
    id="returns", question="How do I return an item?", answer="Within 30 days, unused, in its packaging."
)
QUEUE_FULL = ErrorDetail(type="overloaded_error", code="queue_full", message="the queue is full", retryable=True)
TOO_LONG = ErrorDetail(
    type="invalid_request_error", code="input_too_long", message="1,025 tokens; the limit is 1,024", retryable=False
)
INTERNAL = ErrorDetail(type="server_error", code="engine_failed", message="the device failed", retryable=True)


async def test_text_is_shown_while_the_answer_is_still_being_written(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["Where is it?"] = Script(deltas=("Your parcel ", "is on ", "its way."), pause_before=2)
    page = await open_chat()
    await ask(page, "Where is it?")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_text("Your parcel is on ")
    gateway.release()
    await expect(answer).to_contain_text("Your parcel is on its way.")
    await expect(answer).to_contain_text("AI answer")


async def test_stop_cancels_the_answer_and_keeps_what_was_written(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["Tell me everything"] = Script(deltas=("First, ", "and so on"), pause_before=1)
    page = await open_chat()
    await ask(page, "Tell me everything")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_text("First, ")
    await page.get_by_role("button", name="Stop answering").click()
    (cancel,) = await gateway.expect(ResponseCancel)
    assert cancel.response_id == "response-1"
    await expect(answer).to_contain_text("Stopped")
    await expect(answer).not_to_contain_text("and so on")
    await expect(page.get_by_label("Your question")).to_be_focused()


async def test_an_answer_shows_its_source_and_what_cut_it(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    text = ("It is half",)
    said = {
        "AI answer": Script(deltas=text),
        "From our help pages": Script(deltas=text, source="faq"),
        "Busy": Script(deltas=text, source="busy"),
        "Cut at the deadline": Script(deltas=text, status="incomplete", reason="deadline"),
        "Cut at its length limit": Script(deltas=text, status="incomplete", reason="max_output_tokens"),
    }
    page = await open_chat()
    for number, (mark, script) in enumerate(said.items()):
        gateway.scripts[mark] = script
        await ask(page, mark)
        answer = page.get_by_role("article", name="Answer").nth(number)
        await expect(answer.get_by_text(mark)).to_be_visible()


async def test_the_help_entry_behind_an_answer_can_be_opened_and_is_not_shown_twice(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    """If the entry is the answer itself, only its question is shown there."""
    gateway.scripts["model"] = Script(deltas=("You have a month.",), grounding=(RETURNS,))
    gateway.scripts["faq"] = Script(deltas=(RETURNS.answer,), source="faq", grounding=(RETURNS,))
    page = await open_chat()
    await ask(page, "model")
    await expect(page.get_by_text(RETURNS.answer)).to_be_hidden()
    await page.get_by_text(f"Based on: {RETURNS.question}").click()
    await expect(page.get_by_text(RETURNS.answer)).to_be_visible()
    await ask(page, "faq")
    answer = page.get_by_role("article", name="Answer").nth(1)
    await expect(answer.get_by_text(RETURNS.question, exact=True)).to_be_visible()
    await expect(answer.get_by_text(RETURNS.answer)).to_have_count(1)


async def test_timings_are_shown_on_demand(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts["?"] = Script(deltas=("An answer.",))
    page = await open_chat()
    await ask(page, "?")
    facts = page.locator(".facts")
    button = page.get_by_role("button", name="How this answer was made")
    await expect(button).to_have_attribute("aria-expanded", "false")
    await expect(facts).to_be_hidden()
    await button.click()
    await expect(button).to_have_attribute("aria-expanded", "true")
    for fact in ("187 ms", "2.31 s", "18 ms", "141 ms", "212 (128 from cache)", "41", "replyline/scripted-0.1b"):
        await expect(facts.get_by_text(fact, exact=True)).to_be_visible()


async def test_a_refused_question_can_be_asked_again(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts["?"] = Script(refusal=QUEUE_FULL)
    page = await open_chat()
    await ask(page, "?")
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_contain_text("Very many people are asking")
    gateway.scripts["?"] = Script(deltas=("Now it works.",))
    await answer.get_by_role("button", name="Try again").click()
    await expect(answer).to_contain_text("Now it works.")
    await expect(answer).to_have_count(1)
    first, second = gateway.all(ResponseCreate)
    assert first.event_id != second.event_id


async def test_a_failure_is_shown_and_a_retry_offered_only_if_it_may_help(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["long"] = Script(refusal=TOO_LONG)
    gateway.scripts["fails"] = Script(deltas=("It be",), status="failed", reason="internal", error=INTERNAL)
    page = await open_chat()
    await ask(page, "long")
    refused, failed = (page.get_by_role("article", name="Answer").nth(number) for number in range(2))
    await expect(refused).to_contain_text("too long")
    await expect(refused.get_by_role("button")).to_have_count(0)
    await ask(page, "fails")
    await expect(failed).to_contain_text("the device failed")
    await expect(failed).not_to_contain_text("AI answer")
    await expect(failed.get_by_role("button", name="Try again")).to_be_enabled()


async def test_an_overlong_question_stays_in_the_input_until_it_is_shortened(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    box, text = page.get_by_label("Your question"), "x" * 4_001
    await box.fill(text)
    await box.press("Enter")
    assert "too long" in await box.evaluate("box => box.validationMessage")
    await expect(box).to_have_value(text)
    await ask(page, text[1:])
    (asked,) = await gateway.expect(ResponseCreate)
    assert asked.input == text[1:]


async def test_a_new_chat_erases_the_old_one_at_the_server_and_starts_an_empty_session(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await ask(page, "Remember me")
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("You asked: Remember me")
    await page.get_by_role("button", name="New chat").click()
    await gateway.expect(SessionDelete)
    await expect(page.get_by_role("article")).to_have_count(0)
    await ask(page, "Who am I?")
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("You asked: Who am I?")
    assert "session-1" not in {start.session_id for start in gateway.starts[1:]}


async def test_a_suggested_question_is_asked_by_one_click(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await page.get_by_role("button", name="Do you ship abroad?").click()
    (question,) = await gateway.expect(ResponseCreate)
    assert question.input == "Do you ship abroad?"
    await expect(page.get_by_role("button", name="Do you ship abroad?")).to_be_hidden()


async def test_a_reload_keeps_the_conversation_and_reattaches_to_an_unfinished_answer(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts["second"] = Script(deltas=("Half ", "whole."), pause_before=1)
    page = await open_chat()
    await ask(page, "first")
    answers = page.get_by_role("article", name="Answer")
    await expect(answers.first).to_contain_text("You asked: first")
    await expect(page.get_by_role("button", name="Send")).to_be_visible()
    await ask(page, "second")
    await expect(answers.nth(1)).to_have_text("Half ")
    await page.reload()
    await expect(answers.first).to_contain_text("You asked: first")
    await expect(answers.nth(1)).to_have_text("Half ")
    gateway.release()
    await expect(answers.nth(1)).to_contain_text("Half whole.")
    assert gateway.num_computed == 2


STORED = (
    "{",
    "null",
    "5",
    '{"a": 1}',
    '[null, 5, {"event_id": "e"}, {"event_id": "e", "question": "?", "response": 1}]',
)
TURNS = "Object.keys(sessionStorage).find((key) => key.startsWith('replyline:turns:'))"


async def test_data_stored_by_another_script_in_place_of_the_conversation_is_ignored(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    for number, stored in enumerate(STORED):
        await ask(page, f"number {number}")
        await expect(page.get_by_role("article", name="Answer")).to_contain_text(f"You asked: number {number}")
        await page.evaluate(f"(stored) => sessionStorage.setItem({TURNS}, stored)", stored)
        await page.reload()
        await expect(page.get_by_role("article")).to_have_count(0)
    await ask(page, "second")
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("You asked: second")
