"""A customer rates an answer or asks for a person."""

from playwright.async_api import expect

from shared.wire.messages import (
    Feedback,
    HandoffCreated,
    HandoffRequest,
    PersonMessage,
    PersonState,
    SessionStart,
)
from shared.wire.outcome import ErrorDetail
from tests.browser.pages import OpenChat, ask
from tests.browser.scripted_gateway import Script, ScriptedGateway

FAILED = ErrorDetail(type="server_error", code="handoff_failed", message="nobody could be reached", retryable=True)
UNKNOWN = ErrorDetail(
    type="invalid_request_error",
    code="unknown_response",
    message="no such answer",
    retryable=False,
    param="response_id",
)


async def test_an_answer_is_rated_by_keyboard_rated_again_and_the_rating_survives_a_reload(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await ask(page)
    up, down = (page.get_by_role("button", name=name, exact=True) for name in ("Helpful", "Not helpful"))
    await up.focus()
    await page.keyboard.press("Enter")
    await expect(page.locator("[aria-live=polite]")).to_contain_text("Thank you")
    await page.keyboard.press("Tab")
    await page.keyboard.press("Space")
    await expect(down).to_have_attribute("aria-pressed", "true")
    await expect(up).to_have_attribute("aria-pressed", "false")
    first, last = await gateway.expect(Feedback, 2)
    assert [(each.response_id, each.rating) for each in (first, last)] == [("response-1", "up"), ("response-1", "down")]
    await expect(page.locator("[aria-live=polite] p", has_text="Thank you")).to_have_count(2)
    await page.reload()
    await expect(page.get_by_role("button", name="Not helpful")).to_have_attribute("aria-pressed", "true")


async def test_a_refused_rating_is_undone(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.rating_refusal = UNKNOWN
    page = await open_chat()
    await ask(page)
    await page.get_by_role("button", name="Helpful", exact=True).click()
    await expect(page.get_by_role("group", name="Was this answer helpful?")).to_contain_text("Not saved")
    await expect(page.get_by_role("button", name="Helpful", exact=True)).to_have_attribute("aria-pressed", "false")


async def test_only_a_finished_answer_with_text_can_be_rated(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts["busy"] = Script(deltas=("Later.",), source="busy")
    gateway.scripts["handoff"] = Script(deltas=("A person.",), source="handoff")
    gateway.scripts["?"] = Script(deltas=("Half ", "whole."), pause_before=1)
    page = await open_chat()
    thumbs = page.get_by_role("group", name="Was this answer helpful?")
    for question, badge in (("busy", "Busy"), ("handoff", "Handed to a person")):
        await ask(page, question)
        await expect(page.get_by_text(badge, exact=True)).to_be_visible()
    await page.get_by_label("Your question").fill("?")
    await page.keyboard.press("Enter")
    await expect(page.get_by_text("Half ")).to_be_visible()
    await expect(thumbs).to_have_count(0)
    gateway.release()
    await expect(thumbs).to_have_count(1)


async def test_a_requested_person_is_confirmed_in_the_customers_language_and_after_a_reload(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat(locale="zh-CN")
    await page.get_by_role("button", name="转人工客服").click()
    (request,) = await gateway.expect(HandoffRequest)
    assert request.language == "zh"
    await expect(page.get_by_text("已为您申请人工客服")).to_be_visible()
    await expect(page.get_by_text("编号 01234567")).to_be_visible()
    await expect(page.get_by_role("button", name="转人工客服")).to_be_hidden()
    await page.reload()
    await expect(page.get_by_text("编号 01234567")).to_be_visible()
    await page.get_by_role("button", name="English").click()
    await expect(page.get_by_text("A person has been asked to take over.")).to_be_visible()


async def test_a_failed_request_for_a_person_is_not_confirmed_and_can_be_repeated(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.handoff_refusal = FAILED
    page = await open_chat()
    button = page.get_by_role("button", name="Talk to a person")
    await button.click()
    await expect(page.get_by_text("We could not reach a person")).to_be_visible()
    gateway.handoff_refusal = None
    await button.click()
    await expect(page.get_by_text("A person has been asked")).to_be_visible()


async def test_after_fallbacks_a_person_is_requested_without_a_click(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await gateway.broadcast(HandoffCreated(handoff_id="handoff_fedcba9876543210", reason="fallbacks", created_at=5))
    await expect(page.get_by_text("We could not answer well just now")).to_be_visible()


async def test_a_person_requested_from_a_draining_gateway_is_requested_from_the_next_immediately(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await expect(page.get_by_text("Reconnecting…")).to_be_visible()
    await page.get_by_role("button", name="Talk to a person").click()
    await gateway.expect(SessionStart, 2)
    await expect(page.get_by_text("A person has been asked")).to_be_visible()


async def test_without_people_there_is_no_button_and_a_new_chat_has_no_hand_off(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await ask(page)
    await page.get_by_role("button", name="Talk to a person").click()
    await expect(page.get_by_text("A person has been asked")).to_be_visible()
    await page.get_by_role("button", name="New chat").click()
    await expect(page.get_by_text("A person has been asked")).to_be_hidden()
    await expect(page.get_by_role("button", name="Talk to a person")).to_be_enabled()
    gateway.offers_handoff = False
    await page.reload()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await expect(page.get_by_role("button", name="Talk to a person")).to_be_hidden()


async def test_the_customer_sees_who_writes_each_message_once_and_after_a_reload_too(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await ask(page)
    assert [start.talk for start in gateway.starts] == [0]
    hello = PersonMessage(message_id="m1", n=4, name="Anna", text="It is on its way.", at=5)
    await gateway.broadcast(PersonState(state="taken", name="Anna"))
    for _ in range(2):
        await gateway.broadcast(hello)
    said = page.get_by_role("article", name="Anna")
    await expect(page.get_by_text("Anna answers you now.")).to_be_visible()
    await expect(said).to_have_count(1)
    await expect(said).to_contain_text("It is on its way.")
    await expect(page.locator("[aria-live=polite]")).to_contain_text("Anna: It is on its way.")
    await expect(page.get_by_role("button", name="Talk to a person")).to_be_hidden()
    await page.reload()
    await expect(said).to_have_count(1)
    assert [start.talk for start in gateway.starts] == [0, 4]
    await gateway.broadcast(hello)
    await gateway.broadcast(PersonState(state="bot", name="Anna"))
    await expect(page.get_by_text("Anna has handed the chat back to the assistant.")).to_be_visible()
    await expect(page.get_by_role("button", name="Talk to a person")).to_be_visible()
    await expect(said).to_have_count(1)
    await page.get_by_role("button", name="New chat").click()
    await expect(said).to_have_count(0)
