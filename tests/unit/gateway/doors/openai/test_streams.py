"""A stream to a client that waits, or does not read."""

import asyncio
import json
from typing import Any

import pytest

from gateway.doors.openai.door import OpenAiDoor
from gateway.exchange import answer_events
from gateway.exchange.answer_events import AnswerEvents
from tests.support.fakes.gateways import Edge, delta, until
from tests.support.fakes.openai_doors import answer, chat, door_of


class Client:
    """A client that stays, and reads while `reads` is set."""

    def __init__(self, door: OpenAiDoor) -> None:
        self.read = b""
        self.reads = asyncio.Event()
        self.reads.set()
        self._said = [{"type": "http.request", "body": json.dumps(chat("Where is it?", stream=True)).encode()}]
        scope = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "query_string": b"", "headers": []}
        self.served = asyncio.ensure_future(door.app()(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, object]:
        if not self._said:
            await asyncio.Event().wait()
        return self._said.pop(0)

    async def _send(self, message: Any) -> None:
        await self.reads.wait()
        self.read += message.get("body", b"")


async def test_a_waiting_client_gets_keep_alives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_events, "KEEP_ALIVE_S", 0.01)
    edge = Edge()
    client = Client(door_of(edge))
    await until(lambda: client.read.count(b": keep-alive\n\n") > 2)
    await answer(edge, "Here.")
    await client.served
    assert client.read.endswith(b"data: [DONE]\n\n")


async def test_a_client_that_does_not_read_is_dropped_and_its_text_merged() -> None:
    edge = Edge()
    door = door_of(edge, slow_consumer_s=0.2)
    client = Client(door)
    await until(lambda: b"assistant" in client.read)
    client.reads.clear()
    asked = edge.asked[0]
    for at, piece in enumerate("abcdefgh"):
        edge.receive_replies([delta(asked.id, piece, at, session_id=asked.session_id)])
        await asyncio.sleep(0)
    client.reads.set()
    await until(lambda: b'"content":"bcdefgh"' in client.read)
    client.reads.clear()
    edge.receive_replies([delta(asked.id, "i", 8, session_id=asked.session_id)])
    await client.served
    assert b"DONE" not in client.read
    await door.http.exchanges.stop()


async def test_a_restarted_text_ends_the_stream_with_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client's text differs from the log's: it gets an error and asks again."""
    edge = Edge()
    made: list[AnswerEvents] = []
    tell = AnswerEvents._encode_item
    monkeypatch.setattr(AnswerEvents, "_encode_item", lambda self, item: made.append(self) or tell(self, item))
    client = Client(door_of(edge))
    await until(lambda: edge.asked)
    asked = edge.asked[0]
    await until(lambda: edge.gateway.inflight.get(asked.id).answer.created)  # type: ignore[union-attr]
    edge.receive_replies([delta(asked.id, "Here", session_id=asked.session_id)])
    await until(lambda: b"Here" in client.read)
    entry = edge.gateway.inflight.get(asked.id)
    assert entry is not None
    made[0].exchange.put(entry.opened())
    made[0].exchange.flush()
    await client.served
    *_, error, done, rest = client.read.split(b"\n\n")
    assert json.loads(error.removeprefix(b"data: "))["error"]["code"] == "begun_again"
    assert (done, rest) == (b"data: [DONE]", b"")
    await made[0].exchanges.stop()
