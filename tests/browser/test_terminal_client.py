"""The terminal client when its gateway goes away, is silent or refuses. It reconnects before the announced time if it
has a question, and every wait is bounded.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest
from rich.console import Console

from ops.client.chat import _answer, _forget, ask_once, converse
from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.client.telling import ConnectFailed, Refused
from shared.errors import SettingsError
from shared.wire.messages import (
    ClientMessage,
    ErrorEvent,
    HandoffCreated,
    ResponseCancel,
    ResponseCreate,
    ResponseDone,
    SessionClosing,
    SessionDelete,
    SessionStart,
)
from shared.wire.outcome import ErrorDetail
from tests.browser.scripted_gateway import HOUR_MS, Script, ScriptedGateway, Session, ask, client_of, url_of
from tests.support.system import eventually

FULL_S = 7.0
GOING = ErrorDetail(type="overloaded_error", code="shutting_down", message="it goes away", retryable=True)
NOT_NOW = ErrorDetail(type="server_error", code="history_unavailable", message="try again", retryable=True)


class Forgetful(ScriptedGateway):
    """Refuses to erase, or cuts the socket the next few times instead of erasing or cancelling."""

    def __init__(self, *, refusal: ErrorDetail | None = None, cuts: int = 0) -> None:
        super().__init__()
        self.refusal = refusal
        self.cuts = cuts

    async def _handle(self, session: Session, message: ClientMessage) -> None:
        if not isinstance(message, SessionDelete | ResponseCancel):
            await super()._handle(session, message)
        elif self.cuts and session.connection is not None:
            self.cuts -= 1
            session.connection.transport.abort()
        elif self.refusal is not None and isinstance(message, SessionDelete):
            await session.send(ErrorEvent(error=self.refusal))
        else:
            await super()._handle(session, message)


@pytest.mark.timeout(20)
async def test_a_question_asked_during_a_reconnect_is_answered_immediately(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        await gateway.expect(SessionStart)
        await gateway.close_for(4001, reconnect_after_ms=HOUR_MS)
        assert client._socket is not None
        await client._socket._connection.wait_closed()
        await asyncio.sleep(0)
        assert await ask(client) == "You asked: ?"
    assert len(gateway.starts) == 2


@pytest.mark.timeout(20)
async def test_a_full_gateway_is_retried_at_the_time_it_names(
    gateway: ScriptedGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        if FULL_S in slept:
            gateway.no_room = None

    async with client_of(gateway) as client:
        await gateway.expect(SessionStart)
        gateway.no_room = ErrorDetail(
            type="overloaded_error",
            code="too_many_connections",
            message="full",
            retryable=True,
            retry_after_ms=int(1_000 * FULL_S),
        )
        monkeypatch.setattr("shared.client.session.asyncio.sleep", sleep)
        await gateway.hang_up(4001)
        await gateway.expect(SessionStart, 3)
        assert await ask(client) == "You asked: ?"
    assert FULL_S in slept


@pytest.mark.timeout(20)
async def test_an_unfinished_answer_resumes_elsewhere_immediately(gateway: ScriptedGateway) -> None:
    gateway.scripts["?"] = Script(deltas=("Half, ", "and whole."), pause_before=1)
    async with client_of(gateway) as client:
        asking = asyncio.create_task(ask(client))
        await gateway.expect(ResponseCreate)
        await gateway.close_for(4001, reconnect_after_ms=HOUR_MS)
        await gateway.expect(SessionStart, 2)
        gateway.release()
        assert await asking == "Half, and whole."
    assert gateway.num_computed == 1


async def by_ask(gateway: ScriptedGateway) -> None:
    request = ResponseCreate(event_id=new_event_id(), input="?")
    assert await ask_once(url_of(gateway), request, token=None, session_id=None, as_json=False) == 0


async def by_chat(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        assert await _answer(client, "?", Console(highlight=False, soft_wrap=True)) is not None


@pytest.mark.timeout(20)
@pytest.mark.parametrize("type_it", [by_ask, by_chat])
async def test_an_answer_with_another_text_after_a_resume_is_printed_whole_on_a_new_line(
    gateway: ScriptedGateway,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    type_it: Callable[[ScriptedGateway], Awaitable[None]],
) -> None:
    """Texts of two answers are never joined into one."""
    monkeypatch.setattr("ops.client.chat.AsyncReplyline", partial(AsyncReplyline, codec="chat.v1.json"))
    gateway.can_resume = False
    gateway.scripts["?"] = Script(deltas=("Half of the mod", " and no more."), pause_before=1)
    asking = asyncio.ensure_future(type_it(gateway))
    await gateway.expect(ResponseCreate)
    [session] = gateway.sessions.values()
    [running] = session.running.values()
    await eventually(lambda: running.text)
    running.text = "So the help pages say"
    await gateway.hang_up(1012)
    await gateway.expect(ResponseCreate, 2)
    gateway.release()
    await asking
    assert capsys.readouterr().out.startswith("Half of the mod\nSo the help pages say and no more.\n")


@pytest.mark.timeout(20)
async def test_a_client_sends_no_question_to_a_gateway_that_announced_its_end(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        await gateway.expect(SessionStart)
        await gateway.broadcast(SessionClosing(reason="shutdown", reconnect_after_ms=HOUR_MS))
        await eventually(lambda: client._away_s is not None)
        assert await ask(client) == "You asked: ?"
    assert [type(message) for message in gateway.received] == [SessionStart, SessionStart, ResponseCreate]


@pytest.mark.timeout(20)
async def test_a_question_refused_by_a_draining_gateway_is_sent_to_another(gateway: ScriptedGateway) -> None:
    gateway.scripts["?"] = Script(refusal=GOING)
    async with client_of(gateway) as client:
        asking = asyncio.create_task(ask(client))
        await gateway.expect(ResponseCreate)
        gateway.scripts["?"] = Script(deltas=("Here.",))
        assert await asking == "Here."
    first, *again = gateway.all(ResponseCreate)
    assert {request.event_id for request in again} == {first.event_id}


@pytest.mark.timeout(20)
async def test_a_person_is_requested_and_an_answer_rated(gateway: ScriptedGateway) -> None:
    async with client_of(gateway) as client:
        assert await client.hand_off() == client.handoff
        assert (await client.rate("r", "up")).rating == "up"
        gateway.handoff_refusal = ErrorDetail(
            type="server_error", code="handoff_failed", message="nobody", retryable=True
        )
        with pytest.raises(Refused, match="handoff_failed: nobody"):
            await client.hand_off()


@pytest.mark.timeout(20)
async def test_an_unknown_command_is_not_sent_as_a_question(
    gateway: ScriptedGateway, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "typed").write_text("/persons\n/quit\n")
    with (tmp_path / "typed").open() as typed:
        monkeypatch.setattr("sys.stdin", typed)
        monkeypatch.setattr("ops.client.chat.AsyncReplyline", partial(AsyncReplyline, codec="chat.v1.json"))
        assert await converse(url_of(gateway), token=None, session_id=None) == 0
    assert "/persons: no such command" in capsys.readouterr().out
    assert gateway.all(ResponseCreate) == []


@pytest.mark.timeout(20)
async def test_a_failed_erasure_is_reported_in_one_line_and_the_conversation_continues() -> None:
    console = Console(width=200)
    async with Forgetful(refusal=NOT_NOW).serve() as gateway, client_of(gateway) as client:
        with console.capture() as capture:
            assert not await _forget(client, console)
        assert capture.get() == "the history could not be erased: history_unavailable: try again\n"
        assert await ask(client) == "You asked: ?"


@pytest.mark.timeout(20)
async def test_an_erasure_is_repeated_if_the_socket_was_lost_before_its_answer() -> None:
    console = Console(width=200)
    async with Forgetful(cuts=1).serve() as gateway, client_of(gateway) as client:
        with console.capture() as capture:
            assert await _forget(client, console)
        assert capture.get() == "forgotten; a new conversation\n"
        assert len(gateway.all(SessionDelete)) == 2


@pytest.mark.timeout(20)
@pytest.mark.parametrize("can_resume", [True, False])
async def test_a_cancel_is_repeated_if_the_socket_was_lost_with_it(can_resume: bool) -> None:
    async with Forgetful(cuts=1).serve() as gateway, client_of(gateway) as client:
        gateway.can_resume = can_resume
        gateway.scripts["?"] = Script(deltas=("Half, ", "and whole."), pause_before=1)
        events = client.ask(ResponseCreate(event_id="e", input="?"))
        await anext(events)
        await client.cancel("e")
        statuses = [event.response.status async for event in events if isinstance(event, ResponseDone)]
    assert statuses == ["cancelled"]
    assert {cancel.target_event_id for cancel in gateway.all(ResponseCancel)} == {"e"}


@pytest.mark.timeout(20)
async def test_the_next_gateway_is_used_if_the_first_does_not_answer(gateway: ScriptedGateway) -> None:
    nobody = "ws://127.0.0.1:1/ws"
    async with AsyncReplyline(nobody, url_of(gateway), codec="chat.v1.json") as client:
        assert (await client.answer("?")).output_text == "You asked: ?"
    with pytest.raises(ConnectFailed, match=nobody):
        async with AsyncReplyline(nobody, nobody):
            pass


@pytest.mark.timeout(20)
async def test_an_unrequested_handoff_message_completes_no_erasure() -> None:
    async with Forgetful(refusal=NOT_NOW).serve() as gateway, client_of(gateway) as client:
        erasing = asyncio.create_task(client.erase())
        await gateway.broadcast(HandoffCreated(handoff_id="handoff_0", reason="fallbacks", created_at=5))
        with pytest.raises(Refused) as refused:
            await erasing
        assert refused.value.detail == NOT_NOW


@pytest.mark.timeout(20)
async def test_a_caller_waiting_for_an_erasure_gets_an_error_when_the_connection_ends_for_good() -> None:
    async with (
        Forgetful(cuts=1).serve() as gateway,
        AsyncReplyline(url_of(gateway), codec="chat.v1.json", patience_s=0) as client,
    ):
        with pytest.raises(ConnectFailed, match="was lost: 1006"):
            await client.erase()
        with pytest.raises(ConnectFailed):
            await client.erase()


@pytest.mark.parametrize(
    "url",
    [
        "ws://localhost:808O/ws",
        "ws://localhost:80800/ws",
        "http://localhost:8080/ws",
        "localhost:8080",
        "ws:///ws",
    ],
)
async def test_an_invalid_address_is_bad_input(url: str) -> None:
    with pytest.raises(SettingsError) as raised:
        async with AsyncReplyline(url):
            pass
    assert str(raised.value) == f"{url} is not a gateway's address: write ws://host:port/ws"


@pytest.mark.timeout(20)
async def test_a_question_refused_without_its_id_ends_after_another_try(gateway: ScriptedGateway) -> None:
    gateway.scripts["?"] = Script(refusal=NOT_NOW, names_refused=False)
    async with client_of(gateway) as client:
        with pytest.raises(Refused):
            await ask(client)
        assert await ask(client, "And now?") == "You asked: And now?"
    assert [request.input for request in gateway.all(ResponseCreate)] == ["?", "?", "And now?"]


@pytest.mark.timeout(20)
async def test_half_a_surrogate_pair_is_replaced(gateway: ScriptedGateway) -> None:
    request = ResponseCreate(
        event_id=new_event_id(), input="A parcel \ud83d", stop=("\ud83d",), metadata={"\ude00": "\ud83d\udce6"}
    )
    async with AsyncReplyline(url_of(gateway), codec="chat.v1.json") as client:
        assert (await client.answer(request)).output_text == "You asked: A parcel \ufffd"
    (asked,) = gateway.all(ResponseCreate)
    assert (asked.stop, asked.metadata) == (("\ufffd",), {"\ufffd": "📦"})
