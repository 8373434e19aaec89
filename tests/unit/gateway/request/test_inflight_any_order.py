"""Replies, acknowledgements, deadlines and clients in any order end each answer once, with the text that was sent."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gateway.request.answer import _FLOWS_MS, AnswerState
from gateway.request.cursor import CursorKey
from gateway.request.entry import Entry, Item
from gateway.request.outbox import Outbox
from shared.wire.codec import CLIENT_CODECS, GATEWAY_CODECS, decode_reply, msgpack_encode
from shared.wire.messages import ReplyDelta, ReplyDone, ResponseCreated, ResponseDelta, ResponseDone
from shared.wire.outcome import Response
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import FAQ, Requests, delta, done, make_entry
from tests.support.fakes.machine_runs import run_machine
from tests.support.reliability import Reliability

CONNECTIONS = ("c", "d")
AnyReply = TypeVar("AnyReply", ReplyDelta, ReplyDone)
SEAL = CursorKey(b"secret").seal(SessionKey("t", "s"))


@dataclass
class Client:
    """The messages of one connection in its codec, checked as they arrive."""

    codec: str
    outbox: Outbox = field(default_factory=Outbox)
    text: dict[str, str] = field(default_factory=dict)
    seq: dict[str, int] = field(default_factory=dict)
    finished: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.outbox.start_session(SEAL, (), 0.0)

    def read(self) -> None:
        encode, decode = GATEWAY_CODECS[self.codec].encode, CLIENT_CODECS[self.codec].decode
        for sent in self.outbox.drain(0.0):
            message = decode(encode(sent))
            assert message == sent
            if isinstance(message, ResponseCreated):
                name = message.response_id
                self.text[name], self.seq[name] = "", 0
                self.finished.discard(name)
            elif isinstance(message, ResponseDelta):
                name = message.response_id
                assert name in self.text, "a delta comes after its response.created"
                assert name not in self.finished, "nothing comes after response.done"
                assert (message.seq, message.offset) == (self.seq[name], len(self.text[name]))
                assert message.delta
                self.text[name] += message.delta
                self.seq[name] += 1
            elif isinstance(message, ResponseDone):
                response = message.response
                assert response.id in self.text, "an end comes after its response.created"
                assert response.id not in self.finished
                assert self.text[response.id] == response.output_text
                self.finished.add(response.id)


def from_kafka(reply: AnyReply) -> AnyReply:
    """The reply encoded to the log and decoded again."""
    read = decode_reply(msgpack_encode(reply))
    assert isinstance(read, type(reply))
    return read


class Inflight(RuleBasedStateMachine):
    """The gateway's use of the table, with two connections that read when they like."""

    def __init__(self, codec: str) -> None:
        super().__init__()
        self.codec = codec
        self.table = Requests()
        self.clients = {name: Client(codec) for name in CONNECTIONS}
        self.entries: dict[str, Entry] = {}
        self.ended: dict[str, int] = {}
        self.scripts: dict[str, tuple[str, str]] = {}
        self.unheard: set[str] = set()
        self.now = 0.0

    def live(self, *states: AnswerState) -> list[Entry]:
        return [entry for entry in self.entries.values() if not states or entry.answer.state in states]

    def pick(self, data: st.DataObject, *states: AnswerState) -> Entry | None:
        names = [entry.response_id for entry in self.live(*states)]
        return self.entries[data.draw(st.sampled_from(names))] if names else None

    def show(self, entry: Entry, items: Iterable[Item]) -> None:
        items = list(items)
        for item in items:
            if isinstance(item, Response):
                self.ended[entry.response_id] += 1
                assert entry.answer.done
            if entry.connection_id is not None:
                self.clients[entry.connection_id].outbox.put(item)

    # --- requests

    @rule(
        soft=st.integers(0, 300),
        more=st.integers(0, 300),
        first=st.text("ab你", max_size=6),
        second=st.text("ab你", max_size=6) | st.none(),
        connection=st.sampled_from(CONNECTIONS),
    )
    def accept(self, soft: int, more: int, first: str, second: str | None, connection: str) -> None:
        start = int(self.now)
        entry = make_entry(len(self.entries) + 1, soft=start + soft, hard=start + soft + more, received=self.now)
        entry.connection_id = connection
        self.table.accept(entry)
        self.entries[entry.response_id] = entry
        self.ended[entry.response_id] = 0
        self.scripts[entry.response_id] = (first, first if second is None else second)

    @rule(data=st.data())
    def admit(self, data: st.DataObject) -> None:
        if entry := self.pick(data, AnswerState.COUNTING, AnswerState.DONE):
            entry.answer.admit(self.now)

    @rule(data=st.data())
    def refuse(self, data: st.DataObject) -> None:
        if entry := self.pick(data, AnswerState.COUNTING):
            self.table.refuse(entry)
            del self.entries[entry.response_id]
            assert self.table.find(SessionKey("t", "s"), entry.request.event_id) is None

    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        if entry := self.pick(data, AnswerState.PUBLISHING, AnswerState.DONE):
            self.show(entry, entry.acknowledge())

    # --- replies

    @rule(data=st.data(), attempt=st.integers(0, 1))
    def delta(self, data: st.DataObject, attempt: int) -> None:
        entry = self.pick(data)
        if entry is None:
            return
        text = self.scripts[entry.response_id][attempt]
        start = data.draw(st.integers(0, len(text)))
        stop = data.draw(st.integers(start, len(text)))
        reply = from_kafka(delta(text[start:stop], start, attempt=attempt, request_id=entry.response_id))
        shown = self.table.delta(reply, self.now)
        if shown:
            assert entry.answer.state is AnswerState.STREAMING
            self.show(entry, shown)

    @rule(data=st.data(), attempt=st.integers(0, 1), whole=st.booleans())
    def done(self, data: st.DataObject, attempt: int, whole: bool) -> None:
        entry = self.pick(data)
        if entry is None or self.table.get(entry.response_id) is None:
            return
        text = self.scripts[entry.response_id][attempt]
        text = text if whole else text[: len(text) // 2]
        seen = entry.answer.text if entry.answer.created else ""
        reply = from_kafka(done(text, attempt=attempt, request_id=entry.response_id))
        flows = (
            bool(seen) and attempt != entry.answer.attempt and self.now - entry.answer.last_delta_unix_ms <= _FLOWS_MS
        )
        self.show(entry, self.table.finish(entry, reply, self.now))
        response = entry.answer.response
        assert (response is None) == (flows and not text), "only the writing worker may end it without text"
        if response is None:
            return
        expected = ("completed", text) if text.startswith(seen) else ("failed", seen)
        assert (response.status, response.output_text) == expected

    # --- the gateway and the client

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if entry := self.pick(
            data, AnswerState.COUNTING, AnswerState.PUBLISHING, AnswerState.WAITING, AnswerState.STREAMING
        ):
            self.show(entry, self.table.cancel(entry, self.now))

    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        """Kafka refused it, or the worker gave it up."""
        entry = self.pick(data, AnswerState.COUNTING, AnswerState.PUBLISHING, AnswerState.WAITING)
        if entry is not None:
            self.show(entry, self.table.fall_back(entry, FAQ, self.now))

    @rule(ms=st.floats(0, 120))
    def time_passes(self, ms: float) -> None:
        self.now += ms
        live = [entry for entry in self.entries.values() if not entry.answer.done]
        missed = [
            entry
            for entry in live
            if entry.deadline.expired(self.now, started=entry.answer.state is AnswerState.STREAMING)
        ]
        late = [*self.table.due_times.late(self.now)]
        assert {entry.response_id for entry in late} == {entry.response_id for entry in missed}
        assert len(late) == len(missed)
        for entry in late:
            if entry.answer.state is AnswerState.STREAMING:
                self.show(entry, self.table.cut(entry, self.now))
                assert entry.answer.response is not None
                assert entry.answer.response.output_text
            else:
                self.show(entry, self.table.fall_back(entry, FAQ, self.now))

    @rule(data=st.data(), connection=st.sampled_from(CONNECTIONS))
    def ask_again(self, data: st.DataObject, connection: str) -> None:
        entry = self.pick(data)
        if entry is None or (found := self.table.find(SessionKey("t", "s"), entry.request.event_id)) is None:
            return
        assert found is entry
        self.unheard.discard(entry.response_id)
        for item in self.table.reattach(entry, connection):
            self.clients[connection].outbox.put(item)
        client = self.clients[connection]
        client.read()
        if entry.answer.created:
            assert client.text[entry.response_id] == entry.answer.text
            assert (entry.response_id in client.finished) == entry.answer.done

    @rule(connection=st.sampled_from(CONNECTIONS))
    def lose(self, connection: str) -> None:
        self.unheard |= {name for name, entry in self.entries.items() if entry.connection_id == connection}
        self.table.detach(connection)
        self.clients[connection] = Client(self.codec)

    @rule(connection=st.sampled_from(CONNECTIONS))
    def read(self, connection: str) -> None:
        self.clients[connection].read()

    @precondition(lambda self: not any(not entry.answer.done for entry in self.entries.values()))
    @rule()
    def forget(self) -> None:
        self.table.forget_before(SessionKey("t", "s"), 1)
        assert not self.table._by_event
        self.entries.clear()

    # --- always

    @invariant()
    def each_ends_once_and_only_then_is_gone(self) -> None:
        live = {entry.response_id for entry in self.entries.values() if not entry.answer.done}
        assert len(self.table) == len(live)
        for name, entry in self.entries.items():
            assert self.ended[name] == entry.answer.done
            assert (self.table.get(name) is entry) == (not entry.answer.done)
            assert (entry.answer.response is not None) == entry.answer.done

    @invariant()
    def nobody_is_forgotten_by_the_clock(self) -> None:
        dues = [
            entry.deadline.deadline_unix_ms
            if entry.answer.state is AnswerState.STREAMING
            else entry.deadline.first_token_unix_ms
            for entry in self.entries.values()
            if not entry.answer.done
        ]
        due = self.table.due_times.next_unix_ms()
        assert (due is None) == (not dues)
        if due is not None:
            assert due <= min(dues)

    def teardown(self) -> None:
        """At the latest the hard deadline ends every answer, and a connected client has the whole text."""
        self.time_passes(10_000.0)
        assert len(self.table) == 0
        for entry in self.entries.values():
            assert entry.answer.response is not None
            assert entry.answer.text == entry.answer.response.output_text
            if entry.response_id not in self.unheard:
                assert entry.connection_id is not None
                client = self.clients[entry.connection_id]
                client.read()
                assert entry.response_id in client.finished
                assert client.text[entry.response_id] == entry.answer.text


@pytest.mark.parametrize("codec", GATEWAY_CODECS)
@pytest.mark.promise(2)
def test_each_answer_ends_once_and_reads_as_sent(codec: str, reliability: Reliability) -> None:
    run_machine(reliability, lambda: Inflight(codec), part=150)
