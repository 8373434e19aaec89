"""Any messages at any time: a session opens once, closes once, and belongs to one subject for as long as its tokens
last.
"""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from gateway.session.effects import Ask, Close, ForPeople, OpenSession, Send
from gateway.session.protocol import SessionState
from shared.errors import ProtocolError
from shared.wire.codec import CLIENT_CODECS, GATEWAY_CODECS
from shared.wire.messages import (
    ClientMessage,
    Feedback,
    HandoffRequest,
    Ping,
    Pong,
    ResponseCreate,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
)
from tests.support.fakes.machine_runs import run_machine
from tests.support.fakes.sessions import ALL, ASK, PERSON, RATING, new, receive
from tests.support.hostile.message_strategies import any_of
from tests.support.reliability import Reliability
from tests.support.tokens import NOW_UNIX_MS, RULES, gate, token


class Connection(RuleBasedStateMachine):
    """Any messages at any time: it opens once, closes once, and does nothing before or after."""

    def __init__(self, codec: str) -> None:
        super().__init__()
        self.encode, self.decode = CLIENT_CODECS[codec].encode, GATEWAY_CODECS[codec].decode

    @initialize(per_minute=st.integers(1, 10))
    def start(self, per_minute: int) -> None:
        self.session = new(per_minute)
        self.now = 0.0
        self.was_open = self.was_closed = False
        self.unanswered = 0

    @rule(message=st.sampled_from(ALL) | any_of(ClientMessage))
    def receive(self, message: ClientMessage) -> None:
        before = self.session.state
        try:
            effects = receive(self.session, self.decode(self.encode(message)), self.now)
        except ProtocolError:
            assert before is not SessionState.CLOSED
            assert self.session.state is before
            return
        if isinstance(message, Pong):
            self.unanswered = 0
        for effect in effects:
            if isinstance(effect, Close):
                assert before is SessionState.NEW
                assert not isinstance(message, SessionStart)
                self.was_closed = True
            elif isinstance(effect, OpenSession):
                assert before is SessionState.NEW
                assert not self.was_open
                self.was_open = True
            else:
                assert before is SessionState.OPEN
                if isinstance(effect, ForPeople):
                    assert effect.message == message

    @rule(ms=st.floats(0, 30_000))
    def tick(self, ms: float) -> None:
        self.now += ms
        before = self.session.state
        for effect in self.session.tick(self.now):
            if isinstance(effect, Close):
                assert not self.was_closed
                self.was_closed = True
                late_hello = before is SessionState.NEW and self.now >= 5_000
                assert late_hello or (before is SessionState.OPEN and self.unanswered == 2)
            else:
                assert effect == Send(Ping())
                assert before is SessionState.OPEN
                self.unanswered += 1

    @invariant()
    def its_state_is_what_was_said(self) -> None:
        state = SessionState.CLOSED if self.was_closed else SessionState.OPEN if self.was_open else SessionState.NEW
        assert self.session.state is state


@pytest.mark.parametrize("codec", GATEWAY_CODECS)
@pytest.mark.promise(2)
def test_a_connection_keeps_its_order(codec: str, reliability: Reliability) -> None:
    run_machine(reliability, lambda: Connection(codec), part=50)


class Guarded(RuleBasedStateMachine):
    """Good and bad tokens of two people, and time: the session belongs to its opener until their last good token has
    expired and never longer.
    """

    @initialize()
    def start(self) -> None:
        self.now = NOW_UNIX_MS
        self.session = new(per_minute=10**6, now=self.now, gate=gate())
        self.owner: str | None = None
        self.until = 0.0

    @rule(sub=st.sampled_from(["alice", "bob"]), ttl_s=st.integers(-60, 90), good=st.booleans(), again=st.booleans())
    def show_a_token(self, sub: str, ttl_s: int, good: bool, again: bool) -> None:
        expires_s = int(self.now / 1_000) + ttl_s
        text = token(sub=sub, exp=expires_s) if good else token(sub=sub, exp=expires_s, iss="evil")
        before = self.session.state
        try:
            effects = receive(self.session, SessionRefresh(token=text) if again else SessionStart(token=text), self.now)
        except ProtocolError:
            assert before is SessionState.OPEN
            return
        for effect in effects:
            if isinstance(effect, OpenSession) or (
                isinstance(effect, Send) and isinstance(effect.message, SessionRefreshed)
            ):
                assert good
                assert self.owner in {None, sub}
                self.owner = sub
                leeway_ms = 0 if self.now < expires_s * 1_000 else RULES.leeway_ms
                self.until = max(self.until, expires_s * 1_000 + leeway_ms)
                assert self.session.created(recovered=False, replayed=0).expires_at == int(self.until)

    @rule(message=st.sampled_from([ASK, PERSON, RATING]))
    def ask(self, message: ResponseCreate | HandoffRequest | Feedback) -> None:
        before = self.session.state
        effects = receive(self.session, message, self.now)
        expected = [Ask(message, self.session.caller) if isinstance(message, ResponseCreate) else ForPeople(message)]
        assert (effects == expected) == (before is SessionState.OPEN and self.now < self.until)

    @rule(ms=st.integers(1, 30_000))
    def wait(self, ms: int) -> None:
        self.now += ms
        for effect in self.session.tick(self.now):
            if isinstance(effect, Send) and isinstance(effect.message, Ping):
                receive(self.session, Pong(), self.now)

    @invariant()
    def it_belongs_to_its_owner_and_ends_in_time(self) -> None:
        if self.session.state is SessionState.OPEN:
            assert self.session.identity is not None
            assert self.session.identity.subject == self.owner
            self.session.tick(self.now)
            assert (self.session.state is SessionState.CLOSED) == (self.now >= self.until)


@pytest.mark.promise(2)
def test_a_session_belongs_to_its_opener(reliability: Reliability) -> None:
    run_machine(reliability, Guarded)
