"""Noise is what nobody honest sends: no record of it can be served, no connection of it asks for an answer."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame
from websockets.protocol import State
from websockets.server import ServerProtocol

from shared.errors import ProtocolError
from shared.records.requests import open_request
from shared.wire.codec import client_decoder, decode_erase, decode_notice, decode_reply, decode_report
from shared.wire.messages import SessionStart
from shared.wire.topics import BUCKETS, REPLY_TOPIC, TopicNames
from tests.chaos.faults.noise import Record, draw_connection, draw_record

NAMES = TopicNames("t.")
REQUESTS = {NAMES.inbox, *(NAMES.requests(bucket) for bucket in BUCKETS)}
READ = {
    NAMES.replies: decode_reply,
    NAMES.cancels: decode_notice,
    NAMES.erasures: decode_erase,
    NAMES.workers: decode_report,
}
SUBPROTOCOL = "chat.v1.msgpack"


def refused(record: Record) -> bool:
    """By whoever reads that topic; or it is for a reply topic that no setting allows."""
    try:
        if record.topic in REQUESTS:
            open_request(record.value, record.headers)
            return record.headers.get(REPLY_TOPIC) == b"somebody.elses.topic"
        READ[record.topic](record.value)
    except ProtocolError:
        return True
    return False


@given(seed=st.integers(0, 2**32))
def test_no_record_of_noise_can_be_served(seed: int) -> None:
    records = [draw_record(chance, NAMES) for chance in [Random(seed)] for _ in range(20)]
    assert all(refused(record) for record in records)
    assert records == [draw_record(chance, NAMES) for chance in [Random(seed)] for _ in range(20)]


def test_every_topic_that_is_read_gets_some_and_requests_most() -> None:
    """Of each topic more than one kind."""
    chance = Random(1)
    drawn = [draw_record(chance, NAMES) for _ in range(600)]
    by_topic = Counter(record.topic for record in drawn)
    assert set(by_topic) == REQUESTS | set(READ)
    assert sum(by_topic[topic] for topic in REQUESTS) > 300
    assert all(len({record.value[:8] for record in drawn if record.topic == topic}) > 3 for topic in by_topic)


def heard(pieces: list[bytes]) -> tuple[State, list[bytes]]:
    """How far a server of WebSocket gets with it, and the messages that it hands on."""
    server = ServerProtocol(subprotocols=[SUBPROTOCOL])  # type: ignore[list-item]
    messages = []
    for piece in pieces:
        server.receive_data(piece)
        for event in server.events_received():
            if isinstance(event, Frame):
                messages.append(bytes(event.data))
            else:
                server.send_response(server.accept(event))  # type: ignore[arg-type]
    return server.state, messages


@given(seed=st.integers(0, 2**32))
def test_no_connection_of_noise_asks_for_an_answer(seed: int) -> None:
    """It breaks HTTP or WebSocket, stops half-way, or says after its greeting what is no message."""
    pieces = draw_connection(Random(seed))
    assert pieces == draw_connection(Random(seed))
    assert 0 < sum(map(len, pieces)) < 100_000
    for number, message in enumerate(heard(pieces)[1]):
        try:
            assert isinstance(client_decoder(text=False)(message), SessionStart)
            assert number == 0
        except ProtocolError:
            pass


def test_connections_break_every_layer() -> None:
    """HTTP, WebSocket, the protocol on it."""
    chance = Random(1)
    ends = Counter[tuple[State, bool]]()
    for _ in range(200):
        state, messages = heard(draw_connection(chance))
        ends[(state, len(messages) > 1)] += 1
    assert {(State.CONNECTING, False), (State.OPEN, True)} < set(ends)
    assert any(state in {State.CLOSING, State.CLOSED} for state, _ in ends)
