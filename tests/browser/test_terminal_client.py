"""The terminal's client where its gateway goes away: with something to ask it does not wait as long as it was told."""

import asyncio

import pytest
from scripted_gateway import Script, ScriptedGateway
from system import eventually

from ops.client import ChatClient, new_event_id
from shared.messages import (
    ErrorDetail,
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffRequest,
    ResponseCreate,
    ResponseDelta,
    ResponseDone,
    SessionClosing,
    SessionStart,
)

HOUR_MS = 3_600_000
GOING = ErrorDetail(type="overloaded_error", code="shutting_down", message="it goes away", retryable=True)


def client_of(gateway: ScriptedGateway) -> ChatClient:
    """Patient beyond any test."""
    return ChatClient(f"{gateway.origin.replace('http', 'ws')}/ws", codec="chat.v1.json", patience_s=2 * HOUR_MS)


async def ask(client: ChatClient, text: str = "?") -> str:
    shown = ""
    async for event in client.ask(ResponseCreate(event_id=new_event_id(), input=text)):
        if isinstance(event, ResponseDelta):
            shown += event.delta
        assert not isinstance(event, ErrorEvent)
        if isinstance(event, ResponseDone):
            assert event.response.output_text == shown
    return shown


@pytest.mark.timeout(20)
async def test_a_question_that_is_asked_meanwhile_is_answered_at_once(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        await gateway.expect(SessionStart)
        await gateway.close_for(4001, reconnect_after_ms=HOUR_MS)
        assert client._socket is not None
        await client._socket.wait_closed()
        await asyncio.sleep(0)
        assert await ask(client) == "You asked: ?"
    assert len(gateway.starts) == 2


@pytest.mark.timeout(20)
async def test_an_unfinished_answer_goes_on_elsewhere_at_once(gateway: ScriptedGateway) -> None:
    gateway.scripts["?"] = Script(deltas=("Half, ", "and whole."), pause_before=1)
    async with client_of(gateway) as client:
        asking = asyncio.create_task(ask(client))
        await gateway.expect(ResponseCreate)
        await gateway.close_for(4001, reconnect_after_ms=HOUR_MS)
        await gateway.expect(SessionStart, 2)
        gateway.release()
        assert await asking == "Half, and whole."
    assert gateway.num_computed == 1


@pytest.mark.timeout(20)
async def test_a_gateway_that_says_that_it_goes_is_asked_nothing_more(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        await gateway.expect(SessionStart)
        await gateway.broadcast(SessionClosing(reason="shutdown", reconnect_after_ms=HOUR_MS))
        await eventually(lambda: client._away_s is not None)
        assert await ask(client) == "You asked: ?"
    assert [type(message) for message in gateway.received] == [SessionStart, SessionStart, ResponseCreate]


@pytest.mark.timeout(20)
async def test_what_a_going_gateway_refuses_is_asked_elsewhere(gateway: ScriptedGateway) -> None:
    gateway.scripts["?"] = Script(refusal=GOING)
    async with client_of(gateway) as client:
        asking = asyncio.create_task(ask(client))
        await gateway.expect(ResponseCreate)
        gateway.scripts["?"] = Script(deltas=("Here.",))
        assert await asking == "Here."
    first, *again = gateway.all(ResponseCreate)
    assert {request.event_id for request in again} == {first.event_id}


@pytest.mark.timeout(20)
async def test_a_person_is_asked_for_and_an_answer_rated(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        told = await client.tell(HandoffRequest(event_id="h"))
        assert isinstance(told, HandoffCreated)
        assert client.handoff == told
        recorded = await client.tell(Feedback(event_id="f", response_id="r", rating="up"))
        assert isinstance(recorded, FeedbackRecorded)
        gateway.handoff_refusal = ErrorDetail(
            type="server_error", code="handoff_failed", message="nobody", retryable=True
        )
        refused = await client.tell(HandoffRequest(event_id="h2"))
        assert isinstance(refused, ErrorEvent)
