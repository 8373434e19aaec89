"""A customer's view of a bad connection: nothing is lost and nothing shown twice."""

import asyncio

import pytest
from playwright.async_api import Page, WebSocket, expect

from shared.wire.messages import Ping, Pong, ResponseCreate, SessionClosing, SessionDelete, SessionStart
from shared.wire.outcome import ErrorDetail
from tests.browser.pages import OpenChat, ask
from tests.browser.scripted_gateway import Script, ScriptedGateway

PARTS = ("The first part, ", "the second 🌲, ", "the third, ", "and the end.")
QUESTION = "How does it go?"
GOING = ErrorDetail(type="overloaded_error", code="shutting_down", message="it goes away", retryable=True)

FULL = ErrorDetail(
    type="overloaded_error", code="too_many_connections", message="full", retryable=True, retry_after_ms=60_000
)


def watch_sockets(page: Page) -> list[WebSocket]:
    """Return a list that fills with every socket that the page opens after this call."""
    sockets: list[WebSocket] = []
    page.on("websocket", lambda socket: sockets.append(socket))  # noqa: PLW0108 - playwright marks the handler
    return sockets


@pytest.mark.parametrize("can_resume", [True, False], ids=["resumed", "not-resumed"])
async def test_after_a_lost_socket_the_same_answer_resumes_and_is_shown_once(
    gateway: ScriptedGateway, open_chat: OpenChat, *, can_resume: bool
) -> None:
    gateway.can_resume = can_resume
    gateway.scripts[QUESTION] = Script(deltas=PARTS, drop_before=2, pause_before=3)
    page = await open_chat()
    await ask(page, QUESTION)
    asked = await gateway.expect(ResponseCreate, 1 if can_resume else 2)
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_text("".join(PARTS[:3]))
    gateway.release()
    await expect(answer).to_contain_text("AI answer")
    await expect(answer.locator(".prose")).to_have_text("".join(PARTS))
    assert len({request.event_id for request in asked}) == 1
    assert len(await gateway.expect(ResponseCreate, len(asked))) == len(asked), "a running answer is not repeated"
    assert gateway.num_computed == 1
    assert len(gateway.starts) == 2  # repeated deltas are no gap, so the page requested nothing again


async def test_a_resumed_session_names_its_id_and_the_last_event_that_arrived(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts[QUESTION] = Script(deltas=PARTS, drop_before=2)
    page = await open_chat()
    await ask(page, QUESTION)
    first, second = await gateway.expect(SessionStart, 2)
    assert first.session_id is None
    assert first.resume is None
    assert second.session_id == "session-1"
    assert second.resume is not None
    assert second.resume.cursor == "3"  # created and two deltas


async def test_a_delta_that_never_arrived_is_fetched_by_resuming(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    gateway.scripts[QUESTION] = Script(deltas=PARTS, lose=1, pause_before=3)
    page = await open_chat()
    await ask(page, QUESTION)
    await gateway.expect(SessionStart, 2)
    await expect(page.get_by_role("article", name="Answer")).to_have_text("".join(PARTS[:3]))


async def test_a_silent_connection_is_replaced_after_two_heartbeats(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.heartbeat_s = 0.1
    await open_chat()
    await gateway.expect(SessionStart, 2)


async def test_a_ping_is_answered(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await gateway.broadcast(Ping())
    await gateway.expect(Pong)


async def test_the_client_reconnects_to_a_closing_gateway_no_earlier_than_asked(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    sockets = watch_sockets(page)
    await page.clock.install()
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    await page.clock.fast_forward(3_590_000)
    assert sockets == []
    await page.clock.fast_forward(10_000)
    await gateway.expect(SessionStart, 2)
    await expect(page.get_by_text("Connected")).to_be_visible()


async def test_a_gateway_that_drains_before_a_session_began_keeps_no_question(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    """It announces its end immediately, even without a session; the question goes to another gateway without waiting
    for the close.
    """
    gateway.can_resume = False
    gateway.heartbeat_s = 3_600.0
    gateway.scripts[QUESTION] = Script(deltas=PARTS, drop_before=1)
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    gateway.farewell = SessionClosing(reason="shutdown", reconnect_after_ms=3_600_000)
    await ask(page, QUESTION)
    async with asyncio.timeout(30):
        await gateway.expect(SessionStart, 3)
        await gateway.expect(ResponseCreate, 2)
    assert gateway.farewell is None


async def test_a_full_gateway_is_retried_at_the_time_it_names(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.clock.install()
    gateway.no_room = FULL
    await gateway.hang_up(4001)
    await page.clock.run_for(10_000)
    await gateway.expect(SessionStart, 2)
    await expect(page.get_by_text("Reconnecting…")).to_be_visible()
    gateway.no_room = None
    sockets = watch_sockets(page)
    await page.clock.run_for(45_000)
    assert sockets == []
    await page.clock.run_for(45_000)
    await expect(page.get_by_text("Connected")).to_be_visible()


async def test_the_client_does_not_reconnect_after_a_terminal_close(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    sockets = watch_sockets(page)
    await page.clock.install()
    for code in (4500, 4501, 4502, 4503):
        await expect(page.get_by_text("Connected")).to_be_visible()
        sockets.clear()
        await gateway.hang_up(code)
        await expect(page.get_by_text(f"closed by the server (code {code})")).to_be_visible()
        await page.clock.fast_forward(3_600_000)
        assert sockets == []
        await page.get_by_role("button", name="Connect again").click()
    await expect(page.get_by_text("Connected")).to_be_visible()


async def test_a_question_asked_while_a_gateway_is_away_does_not_wait_for_it(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await expect(page.get_by_text("Trying to connect again")).to_be_visible()
    await ask(page, QUESTION)
    await expect(page.get_by_role("article", name="Answer")).to_contain_text(f"You asked: {QUESTION}")


async def test_an_offline_question_is_shown_as_kept(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    kept = page.get_by_text("your question is kept")
    gateway.no_room = FULL
    await gateway.hang_up(4001)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    await expect(kept).to_be_hidden()
    await ask(page, QUESTION)
    await expect(kept).to_be_visible()


async def test_a_client_with_a_question_reconnects_within_200_ms_with_jitter(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.clock.install()
    await page.evaluate("Math.random = () => 0.5")
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    sockets = watch_sockets(page)
    await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 60"))
    await ask(page, QUESTION)
    await page.clock.run_for(99)
    assert sockets == []
    await page.clock.run_for(1)
    await page.clock.resume()
    await expect(page.get_by_role("article", name="Answer")).to_contain_text(f"You asked: {QUESTION}")


async def test_an_unfinished_answer_resumes_immediately_when_its_gateway_ends(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    gateway.scripts[QUESTION] = Script(deltas=PARTS, pause_before=2)
    page = await open_chat()
    await ask(page, QUESTION)
    answer = page.get_by_role("article", name="Answer")
    await expect(answer).to_have_text("".join(PARTS[:2]))
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await gateway.expect(SessionStart, 2)
    gateway.release()
    await expect(answer.locator(".prose")).to_have_text("".join(PARTS))
    assert gateway.num_computed == 1


async def test_a_client_sends_no_question_to_a_gateway_that_announced_its_end(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    """It closes the connection and asks elsewhere, including questions that were in transit and refused."""
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await gateway.broadcast(SessionClosing(reason="shutdown", reconnect_after_ms=3_600_000))
    await gateway.broadcast(Ping())
    await gateway.expect(Pong)  # it has read the earlier messages
    await ask(page, QUESTION)
    await expect(page.get_by_role("article", name="Answer")).to_contain_text(f"You asked: {QUESTION}")
    kinds = [type(message) for message in gateway.received]
    assert kinds == [SessionStart, Pong, SessionStart, ResponseCreate]
    gateway.scripts["Now?"] = Script(refusal=GOING)
    await ask(page, "Now?")
    await gateway.expect(ResponseCreate, 2)
    gateway.scripts["Now?"] = Script(deltas=("Now.",))
    await expect(page.get_by_role("article", name="Answer").nth(1)).to_contain_text("Now.")
    first, *again = gateway.all(ResponseCreate)[1:]
    assert {request.event_id for request in again} == {first.event_id}


async def test_a_question_withdrawn_while_offline_is_never_sent(gateway: ScriptedGateway, open_chat: OpenChat) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.clock.install()
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    await page.clock.pause_at(await page.evaluate("Date.now() / 1000 + 60"))
    await ask(page, QUESTION)
    await page.get_by_role("button", name="Stop answering").click()
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("Stopped")
    await page.clock.resume()
    await page.clock.fast_forward(3_600_000)
    await expect(page.get_by_text("Connected")).to_be_visible()
    assert gateway.all(ResponseCreate) == []


async def test_a_chat_ended_while_offline_is_erased_before_the_next_question(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await ask(page, QUESTION)
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
    await page.clock.install()
    await gateway.close_for(4001, reconnect_after_ms=3_600_000)
    await expect(page.get_by_text("The connection dropped")).to_be_visible()
    await page.get_by_role("button", name="New chat").click()
    await ask(page, QUESTION)
    await page.clock.fast_forward(200)
    await expect(page.get_by_role("article", name="Answer")).to_contain_text("AI answer")
    kinds = [type(message) for message in gateway.received]
    assert kinds == [SessionStart, ResponseCreate, SessionStart, SessionDelete, SessionStart, ResponseCreate]
    assert [start.session_id for start in gateway.starts] == [None, "session-1", None]


async def test_a_token_is_requested_at_each_connect_and_never_put_in_the_url(
    gateway: ScriptedGateway, open_chat: OpenChat
) -> None:
    page = await open_chat()
    await expect(page.get_by_text("Connected")).to_be_visible()
    await page.evaluate(
        """async () => {
            const { ReplylineClient } = await import('/widget/replyline-client.js');
            let count = 0;
            const token = async () => `token-${++count}`;
            new ReplylineClient({ url: `ws://${location.host}/ws`, token }).connect();
        }"""
    )
    await gateway.expect(SessionStart, 2)
    await gateway.close_for(4005, reconnect_after_ms=1)
    await gateway.expect(SessionStart, 3)
    assert [start.token for start in gateway.starts] == [None, "token-1", "token-2"]
