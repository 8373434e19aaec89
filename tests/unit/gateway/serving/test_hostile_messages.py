"""Any client message in any session state is carried out, or refused with a protocol error that can be sent; nothing
else happens.
"""

from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from random import Random

import pytest

from gateway.request.cursor import CursorKey
from gateway.session.effects import OpenSession, Refuse, Send
from gateway.session.protocol import Session, SessionState, error_event
from shared.errors import ProtocolError
from shared.wire.codec import CLIENT_CODECS, GATEWAY_CODECS, decode_request, msgpack_encode
from shared.wire.messages import ChatRequest, ErrorEvent, ResponseCreate
from shared.wire.outcome import Message
from shared.wire.session_key import SessionKey
from tests.support.fakes.sessions import new, receive
from tests.support.hostile.messages import KINDS, MAX_BYTES, hostile_messages
from tests.support.reliability import Reliability
from tests.support.tokens import NOW_UNIX_MS, gate

WHOLE = 50_000  # of each codec
# An error's text is bounded, however long the message was.
MOST_SAID_BYTES = 1_000
SEAL = CursorKey(b"secret").seal(SessionKey("demo", "s1"))


@dataclass(slots=True)
class Edge:
    """A client's messages through a codec and a session, as the front end passes them; a new session for a closed
    one."""

    name: str
    random: Random
    session: Session = field(init=False)
    now: float = NOW_UNIX_MS
    outcomes: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self._connect()

    def _connect(self) -> None:
        asks_for_tokens = self.random.random() < 0.5
        per_minute = self.random.choice((3, 10**6, 10**6, 10**6))
        self.session = new(per_minute, self.now, gate() if asks_for_tokens else None)

    def send(self, data: bytes) -> None:
        codec = GATEWAY_CODECS[self.name]
        frame = _frame_of(data) if codec.is_text else data
        if self.session.state is SessionState.CLOSED or self.random.random() < 0.1:
            self._connect()
        self.now += self.random.choice((0, 0, 1, 500))
        try:
            outcome = self._carry_out(frame)
        except ProtocolError as error:
            outcome = error.code
            self._tell(error, error.event_id)
        self.outcomes[outcome] += 1

    def _carry_out(self, frame: bytes | str) -> str:
        try:
            message = GATEWAY_CODECS[self.name].decode(frame)
        except ProtocolError:
            self.session.rate.spend(self.now)
            raise
        if isinstance(message, ResponseCreate):
            _publish(message)
        for effect in receive(self.session, message, self.now):
            if isinstance(effect, Refuse):
                raise effect.error
            if isinstance(effect, Send):
                self._read(effect.message)
            elif isinstance(effect, OpenSession):
                self._read(self.session.created(recovered=False, replayed=0))
                if effect.resume is not None:
                    assert SEAL.read(effect.resume.cursor) is None
        return "taken"

    def _tell(self, error: ProtocolError, event_id: str | None) -> None:
        event = error_event(error, event_id)
        assert isinstance(event, ErrorEvent)
        assert len(self._read(event)) <= MOST_SAID_BYTES

    def _read(self, message: Message) -> bytes:
        """Decode as the client does, and compare with what was meant."""
        wire = GATEWAY_CODECS[self.name].encode(message)
        assert CLIENT_CODECS[self.name].decode(wire) == message
        return wire


def _frame_of(data: bytes) -> str | bytes:
    """A text frame's text; bytes if they are not UTF-8, which WebSocket refuses before the codec."""
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _publish(asked: ResponseCreate) -> None:
    """An accepted message can be encoded again and is decoded at the other end."""
    names = set(ResponseCreate.__struct_fields__) & set(ChatRequest.__struct_fields__)
    request = ChatRequest(id="r", session_id="s", **{name: getattr(asked, name) for name in names})
    assert decode_request(msgpack_encode(request)) == request


@pytest.mark.promise(3)
@pytest.mark.parametrize("name", GATEWAY_CODECS)
def test_any_message_is_carried_out_or_refused_with_a_bounded_error(name: str, reliability: Reliability) -> None:
    tried = reliability.amount(WHOLE, part=2_000)
    random = Random(1)
    edge, kinds = Edge(name, random), Counter[str]()
    for hostile in islice(hostile_messages(random, text=GATEWAY_CODECS[name].is_text), tried):
        kinds[hostile.kind] += 1
        try:
            edge.send(hostile.data)
        except Exception as error:
            error.add_note(f"message {kinds.total()}, {hostile.kind}: {hostile.data[:500]!r}")
            raise
    assert kinds.keys() == KINDS.keys()
    assert {"taken", "rate_limited", "invalid_field", "unknown_type", "unauthorized"} <= edge.outcomes.keys()
    reliability.found(
        figure=f"{tried} tried, 0 unhandled; {edge.outcomes['taken']} taken, the others refused in a bounded word",
        target=f"{WHOLE} tried, 0 unhandled",
        holds=True,
    )


@pytest.mark.parametrize("text", [True, False])
def test_a_seed_draws_the_same_messages_again(text: bool) -> None:
    one, again, other = (list(islice(hostile_messages(Random(seed), text=text), 300)) for seed in (1, 1, 2))
    assert one == again
    assert one != other
    assert all(len(hostile.data) <= MAX_BYTES for hostile in one)
