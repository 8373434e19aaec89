"""One connection's protocol: hello first, messages at their rate, pongs for pings."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from message_strategies import NAMES
from tokens import NOW_UNIX_MS, NOW_UNIX_S, RULES, gate, token

from gateway.identity import TokenGate
from gateway.session import (
    Ask,
    Begin,
    CancelAsked,
    Close,
    CloseCode,
    Forget,
    Refuse,
    Send,
    Session,
    SessionLimits,
    State,
    error_event,
)
from gateway.token_keys import KeySet
from shared.errors import ProtocolError
from shared.messages import (
    MAX_ID_CHARS,
    ClientMessage,
    Identifier,
    Limits,
    Ping,
    Pong,
    ResponseCancel,
    ResponseCreate,
    Resume,
    SessionClosing,
    SessionCreated,
    SessionDelete,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
)
from shared.session_key import owned_session_id

ANNOUNCED = Limits(
    max_message_bytes=65_536,
    max_input_tokens=1_024,
    max_output_tokens=512,
    max_inflight=4,
    messages_per_minute=6,
    first_token_ms=200,
    deadline_ms=1_000,
)
START, ASK = SessionStart(), ResponseCreate(event_id="e", input="hi")
ALL = (START, ASK, ResponseCancel(response_id="r"), SessionDelete(), SessionRefresh(token="t"), Pong())


def new(per_minute: int = 100, now: float = 0.0, gate: TokenGate | None = None) -> Session:
    limits = SessionLimits(
        hello_timeout_ms=5_000, heartbeat_ms=25_000, messages_per_minute=per_minute, announced=ANNOUNCED
    )
    return Session(
        connection_id="conn_1", fresh_session_id="sess_1", tenant="demo", gate=gate, limits=limits, now_unix_ms=now
    )


def opened(per_minute: int = 100) -> Session:
    session = new(per_minute)
    session.receive(START, 0)
    return session


def refused(call: Callable[[], object]) -> ProtocolError:
    with pytest.raises(ProtocolError) as caught:
        call()
    return caught.value


def test_hello_opens_the_session_and_tells_the_limits() -> None:
    session = new()
    assert session.receive(START, 0) == [Begin(None)]
    assert session.created(recovered=False, replayed=0) == SessionCreated(
        session_id="sess_1",
        connection_id="conn_1",
        recovered=False,
        replayed=0,
        limits=ANNOUNCED,
        heartbeat_s=25.0,
    )
    assert session.state is State.OPEN


def test_a_client_keeps_the_session_that_it_names() -> None:
    session = new()
    assert session.receive(SessionStart(session_id="mine", resume=Resume(cursor="c")), 0) == [Begin("c")]
    created = session.created(recovered=True, replayed=3)
    assert (created.session_id, created.recovered, created.replayed) == ("mine", True, 3)


def test_without_hello_in_time_it_is_closed() -> None:
    session = new(now=100)
    assert session.tick(5_099.9) == []
    assert session.tick(5_100) == [Close(CloseCode.NO_HELLO, "no session.start in time")]
    assert session.tick(9_999) == []


@pytest.mark.parametrize("message", [ASK, SessionDelete(), SessionRefresh(token="t"), ResponseCancel(response_id="r")])
def test_another_first_message_than_hello_closes_it(message: ClientMessage) -> None:
    session = new()
    [effect] = session.receive(message, 0)
    assert isinstance(effect, Close)
    assert effect.code == CloseCode.NO_HELLO


@pytest.mark.parametrize("message", ALL, ids=lambda message: type(message).__name__)
def test_what_comes_after_the_close_is_not_carried_out(message: ClientMessage) -> None:
    session = new()
    session.receive(ASK, 0)
    assert session.state is State.CLOSED
    assert session.receive(message, 1) == []
    assert session.tick(10**9) == []


def test_messages_become_what_the_gateway_is_to_do() -> None:
    session = opened()
    assert session.receive(ASK, 0) == [Ask(ASK)]
    assert session.receive(ResponseCancel(response_id="r"), 0) == [CancelAsked("r", None)]
    assert session.receive(ResponseCancel(target_event_id="e"), 0) == [CancelAsked(None, "e")]
    assert session.receive(SessionDelete(), 0) == [Forget()]


def test_a_second_hello_is_refused_and_the_session_stays() -> None:
    session = opened()
    assert refused(lambda: session.receive(START, 0)).code == "already_started"
    assert session.state is State.OPEN


def test_tokens_are_refused_while_none_are_checked() -> None:
    session = new()
    error = refused(lambda: session.receive(SessionStart(token="t"), 0))
    assert (error.code, error.kind, error.param) == ("tokens_not_supported", "authentication_error", "token")
    assert session.state is State.NEW
    session.receive(START, 0)
    assert refused(lambda: session.receive(SessionRefresh(token="t"), 0)).code == "tokens_not_supported"


def test_a_cancel_that_names_nothing_is_refused() -> None:
    assert refused(lambda: opened().receive(ResponseCancel(), 0)).param == "response_id"


def test_pings_come_at_every_heartbeat_and_two_unanswered_ones_close() -> None:
    session = opened()
    assert session.tick(24_999) == []
    assert session.tick(25_000) == [Send(Ping())]
    assert session.tick(49_999) == []
    assert session.tick(50_000) == [Send(Ping())]
    assert session.tick(74_999) == []
    assert session.tick(75_000) == [Close(CloseCode.NO_PONG, "two pings went unanswered")]


def test_any_pong_keeps_it_open() -> None:
    session = opened()
    for number in range(1, 20):
        assert session.tick(25_000 * number) == [Send(Ping())]
        if number % 2 == 0:
            assert session.receive(Pong(), 25_000 * number + 1) == []


def test_a_minutes_worth_may_come_at_once_and_the_next_waits_its_turn() -> None:
    session = new(per_minute=6)
    session.receive(START, 0)
    for _ in range(5):
        session.receive(ASK, 0)
    error = refused(lambda: session.receive(ASK, 0))
    assert (error.code, error.kind, error.retriable) == ("rate_limited", "rate_limit_error", True)
    assert error.retry_after_ms is not None
    assert 10_000 <= error.retry_after_ms <= 10_001
    assert refused(lambda: session.receive(ASK, 9_999)).code == "rate_limited"
    assert session.receive(ASK, error.retry_after_ms) == [Ask(ASK)]


@given(st.integers(1, 200), st.lists(st.floats(0, 30_000), min_size=1, max_size=300))
def test_the_rate_is_exact_to_one(per_minute: int, pauses: list[float]) -> None:
    """Of messages that come whenever, as many pass as the minute's worth and its refill allow, less one at most."""
    session, now, passed, refusals = opened(per_minute), 0.0, 1, 0
    for pause in pauses:
        now += pause
        try:
            session.spend(now)
            passed += 1
        except ProtocolError:
            refusals += 1
        assert passed <= per_minute + now * per_minute / 60_000 + 1e-6
    if not refusals:
        assert passed == len(pauses) + 1


@given(st.integers(1, 200), st.integers(1, 10))
def test_a_client_that_always_sends_gets_its_full_rate(per_minute: int, minutes: int) -> None:
    session, now, passed = opened(per_minute), 0.0, 1
    step = 60_000 / per_minute / 4
    while now < 60_000 * minutes and passed < 2_000:
        try:
            session.spend(now)
            passed += 1
        except ProtocolError:
            now += step
    # One for the message that is only partly earned, a quarter for the step of the clock here.
    assert abs(passed - (per_minute + now * per_minute / 60_000)) <= 1.25 + 1e-6


@given(st.integers(1, 200))
def test_the_time_to_wait_is_told_to_the_millisecond(per_minute: int) -> None:
    session = new(per_minute)
    for _ in range(per_minute):
        session.spend(0)
    wait_ms = refused(lambda: session.spend(0)).retry_after_ms
    assert wait_ms is not None
    with pytest.raises(ProtocolError):
        session.spend(wait_ms - 2)
    session.spend(wait_ms)


def test_pongs_are_free_and_count_as_no_hello() -> None:
    session = new(per_minute=1)
    for _ in range(50):
        assert session.receive(Pong(), 0) == []
    assert session.state is State.NEW
    session.receive(START, 0)


def test_an_error_event_says_all_that_the_error_knows() -> None:
    error = ProtocolError(
        "rate_limited", "slower", kind="rate_limit_error", param="p", retriable=True, retry_after_ms=5
    )
    event = error_event(error, "e1")
    detail = event.error
    assert (event.event_id, detail.type, detail.code, detail.message) == (
        "e1",
        "rate_limit_error",
        "rate_limited",
        "slower",
    )
    assert (detail.retryable, detail.param, detail.retry_after_ms) == (True, "p", 5)


# --- tokens


def guarded(**changed: Any) -> Session:
    """A session that was opened by a token of these claims."""
    session = new(now=NOW_UNIX_MS, gate=gate())
    session.receive(SessionStart(token=token(**changed), session_id="mine"), NOW_UNIX_MS)
    assert session.state is State.OPEN
    return session


def test_a_token_opens_the_session_and_says_whose_it_is() -> None:
    session = new(now=NOW_UNIX_MS, gate=gate())
    assert session.receive(SessionStart(token=token(tenant="shop"), session_id="mine"), NOW_UNIX_MS) == [Begin(None)]
    assert session.created(recovered=False, replayed=0).expires_at == (NOW_UNIX_S + 60) * 1_000
    assert (session.tenant, session.session_id) == ("shop", "mine")


@pytest.mark.parametrize(
    ("text", "code", "close"),
    [
        (None, "unauthorized", CloseCode.INVALID_TOKEN),
        ("", "unauthorized", CloseCode.INVALID_TOKEN),
        ("nonsense", "unauthorized", CloseCode.INVALID_TOKEN),
        (token(aud="billing"), "unauthorized", CloseCode.INVALID_TOKEN),
        (token(exp=NOW_UNIX_S - 60), "token_expired", CloseCode.TOKEN_EXPIRED),
    ],
)
def test_without_a_good_token_the_session_is_refused_and_closed(text: str | None, code: str, close: int) -> None:
    session = new(now=NOW_UNIX_MS, gate=gate())
    refuse, closing = session.receive(SessionStart(token=text), NOW_UNIX_MS)
    assert isinstance(refuse, Refuse)
    assert (refuse.error.code, refuse.error.kind) == (code, "authentication_error")
    assert closing == Close(close, code)
    assert session.state is State.CLOSED
    assert session.receive(SessionStart(token=token()), NOW_UNIX_MS) == []


def test_while_the_keys_cannot_be_read_the_client_is_to_come_back() -> None:
    unread = TokenGate(RULES, KeySet(complete=False))
    session = new(now=NOW_UNIX_MS, gate=unread)
    _, closing = session.receive(SessionStart(token=token("RS256")), NOW_UNIX_MS)
    assert closing == Close(CloseCode.INTERNAL, "keys_unavailable")


def test_a_session_of_one_name_is_another_for_each_subject() -> None:
    """In every way that the rest of the gateway and the workers know a conversation by."""
    sessions = [guarded(**who) for who in ({}, {"sub": "bob"}, {"tenant": "shop"}, {"tenant": "shop", "sub": "bob"})]
    assert {session.session_id for session in sessions} == {"mine"}
    assert len({(session.tenant, session.conversation_id) for session in sessions}) == 4
    assert guarded().conversation_id == sessions[0].conversation_id


@given(st.text(min_size=1), st.text(min_size=1), NAMES, NAMES)
def test_no_two_subjects_share_a_conversation(one: str, other: str, session: str, another: str) -> None:
    names = {owned_session_id(who, which) for who in {one, other} for which in {session, another}}
    assert len(names) == len({one, other}) * len({session, another})
    for name in names:
        assert len(name) == MAX_ID_CHARS
        assert msgspec.convert(name, Identifier) == name


def test_who_has_no_token_can_name_nobodys_conversation() -> None:
    session = new()
    owned = guarded().conversation_id
    assert refused(lambda: session.receive(SessionStart(session_id=owned), 0)).param == "session_id"
    session.receive(SessionStart(session_id="mine"), 0)
    assert session.conversation_id == "mine"


def test_the_session_ends_with_its_token() -> None:
    session = guarded()
    expires = (NOW_UNIX_S + 60) * 1_000
    assert Close(CloseCode.TOKEN_EXPIRED, "the token has expired") not in session.tick(expires - 1)
    closing, close = session.tick(expires)
    assert isinstance(closing, Send)
    assert isinstance(closing.message, SessionClosing)
    assert closing.message.reason == "token_expired"
    assert 0 <= closing.message.reconnect_after_ms < 1_000
    assert close == Close(CloseCode.TOKEN_EXPIRED, "the token has expired")
    assert session.tick(expires + 1) == []


@pytest.mark.parametrize("message", [ASK, SessionDelete(), SessionRefresh(token=token(exp=NOW_UNIX_S + 999))])
def test_nothing_is_carried_out_after_the_token_has_expired(message: ClientMessage) -> None:
    """The clock's next tick may be a second away."""
    effects = guarded().receive(message, (NOW_UNIX_S + 60) * 1_000)
    assert [type(effect) for effect in effects] == [Send, Close]


def test_a_newer_token_of_the_same_subject_lets_the_session_go_on() -> None:
    session = guarded()
    until = (NOW_UNIX_S + 600) * 1_000
    effects = session.receive(SessionRefresh(token=token("EdDSA", exp=NOW_UNIX_S + 600)), NOW_UNIX_MS + 1)
    assert effects == [Send(SessionRefreshed(expires_at=until))]
    assert not any(isinstance(effect, Close) for effect in session.tick(until - 1))
    assert isinstance(session.tick(until)[-1], Close)


def test_an_older_token_does_not_shorten_the_session() -> None:
    session = guarded(exp=NOW_UNIX_S + 600)
    effects = session.receive(SessionRefresh(token=token(exp=NOW_UNIX_S + 60)), NOW_UNIX_MS)
    assert effects == [Send(SessionRefreshed(expires_at=(NOW_UNIX_S + 600) * 1_000))]


@pytest.mark.parametrize(
    "text",
    [
        token(sub="bob", exp=NOW_UNIX_S + 999),
        token(tenant="shop", exp=NOW_UNIX_S + 999),
        token(exp=NOW_UNIX_S - 60),
        "nonsense",
        "",
    ],
)
def test_a_token_that_does_not_fit_is_refused_and_the_session_stays_as_it_was(text: str) -> None:
    session = guarded()
    before = (session.identity, session.tenant, session.conversation_id)
    assert refused(lambda: session.receive(SessionRefresh(token=text), NOW_UNIX_MS)).kind == "authentication_error"
    assert (session.identity, session.tenant, session.conversation_id) == before
    assert session.receive(ASK, NOW_UNIX_MS) == [Ask(ASK)]
    assert isinstance(session.tick((NOW_UNIX_S + 60) * 1_000)[-1], Close)


class Connection(RuleBasedStateMachine):
    """Any messages at any time: it opens once, closes once, and does nothing before or after."""

    @initialize(per_minute=st.integers(1, 10))
    def start(self, per_minute: int) -> None:
        self.session = new(per_minute)
        self.now = 0.0
        self.was_open = self.was_closed = False
        self.unanswered = 0

    @rule(message=st.sampled_from(ALL))
    def receive(self, message: ClientMessage) -> None:
        before = self.session.state
        try:
            effects = self.session.receive(message, self.now)
        except ProtocolError:
            assert before is not State.CLOSED
            assert self.session.state is before
            return
        if isinstance(message, Pong):
            self.unanswered = 0
        for effect in effects:
            if isinstance(effect, Close):
                assert before is State.NEW
                assert not isinstance(message, SessionStart)
                self.was_closed = True
            elif isinstance(effect, Begin):
                assert before is State.NEW
                assert not self.was_open
                self.was_open = True
            else:
                assert before is State.OPEN

    @rule(ms=st.floats(0, 30_000))
    def tick(self, ms: float) -> None:
        self.now += ms
        before = self.session.state
        for effect in self.session.tick(self.now):
            if isinstance(effect, Close):
                assert not self.was_closed
                self.was_closed = True
                late_hello = before is State.NEW and self.now >= 5_000
                assert late_hello or (before is State.OPEN and self.unanswered == 2)
            else:
                assert effect == Send(Ping())
                assert before is State.OPEN
                self.unanswered += 1

    @invariant()
    def its_state_is_what_was_said(self) -> None:
        state = State.CLOSED if self.was_closed else State.OPEN if self.was_open else State.NEW
        assert self.session.state is state


TestConnection = Connection.TestCase


class Guarded(RuleBasedStateMachine):
    """Good and bad tokens of two people, and time: who opened the session is who it belongs to, until his last good
    token has expired and never longer."""

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
            effects = self.session.receive(SessionRefresh(token=text) if again else SessionStart(token=text), self.now)
        except ProtocolError:
            assert before is State.OPEN
            return
        for effect in effects:
            if isinstance(effect, Begin) or (isinstance(effect, Send) and isinstance(effect.message, SessionRefreshed)):
                assert good
                assert self.owner in {None, sub}
                self.owner = sub
                leeway_ms = 0 if self.now < expires_s * 1_000 else RULES.leeway_ms
                self.until = max(self.until, expires_s * 1_000 + leeway_ms)
                assert self.session.created(recovered=False, replayed=0).expires_at == int(self.until)

    @rule()
    def ask(self) -> None:
        before = self.session.state
        effects = self.session.receive(ASK, self.now)
        assert (effects == [Ask(ASK)]) == (before is State.OPEN and self.now < self.until)

    @rule(ms=st.integers(1, 30_000))
    def wait(self, ms: int) -> None:
        self.now += ms
        for effect in self.session.tick(self.now):
            if isinstance(effect, Send) and isinstance(effect.message, Ping):
                self.session.receive(Pong(), self.now)

    @invariant()
    def it_belongs_to_its_owner_and_ends_in_time(self) -> None:
        if self.session.state is State.OPEN:
            assert self.session.identity is not None
            assert self.session.identity.subject == self.owner
            self.session.tick(self.now)
            assert (self.session.state is State.CLOSED) == (self.now >= self.until)


TestGuarded = Guarded.TestCase
