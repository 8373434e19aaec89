"""One connection's protocol: hello first, then what the gateway is to do, pongs for pings."""

import pytest

from gateway.session.effects import Ask, CancelRequest, CheckToken, Close, CloseCode, EraseSession, OpenSession, Send
from gateway.session.protocol import SessionState, error_event
from shared.errors import ProtocolError
from shared.wire.messages import (
    ClientMessage,
    Consent,
    ErrorEvent,
    Ping,
    Pong,
    ResponseCancel,
    Resume,
    SessionCreated,
    SessionDelete,
    SessionRefresh,
    SessionStart,
)
from shared.wire.outcome import ErrorDetail
from tests.support.fakes.sessions import ALL, ANNOUNCED, ASK, START, new, opened, receive, refused


@pytest.mark.parametrize("handoff", [False, True])
def test_hello_opens_the_session_and_returns_the_limits(handoff: bool) -> None:
    session = new(handoff=handoff)
    assert session.receive(START, 0) == [OpenSession(None)]
    assert session.created(recovered=False, replayed=0) == SessionCreated(
        session_id="sess_1",
        connection_id="conn_1",
        recovered=False,
        replayed=0,
        limits=ANNOUNCED,
        heartbeat_s=25.0,
        handoff=handoff,
    )
    assert session.state is SessionState.OPEN


def test_a_client_keeps_the_session_it_names() -> None:
    session = new()
    assert session.receive(SessionStart(session_id="mine", resume=Resume(cursor="c")), 0) == [
        OpenSession(Resume(cursor="c"), returns=True)
    ]
    created = session.created(recovered=True, replayed=3)
    assert (created.session_id, created.recovered, created.replayed) == ("mine", True, 3)


@pytest.mark.parametrize("consent", [None, Consent(), Consent(training=True)])
def test_a_session_has_the_consent_of_its_hello_only(consent: Consent | None) -> None:
    session = new()
    assert session.consent is None
    session.receive(SessionStart(consent=consent), 0)
    assert session.consent == consent


def test_a_session_without_hello_in_time_is_closed() -> None:
    session = new(now=100)
    assert session.tick(5_099.9) == []
    assert session.tick(5_100) == [Close(CloseCode.NO_HELLO, "no session.start in time")]
    assert session.tick(9_999) == []


def test_a_hello_whose_keys_are_being_fetched_is_not_late_and_a_refused_one_does_not_count() -> None:
    session = new()
    (check,) = session.receive(SessionStart(token="t"), 4_000)
    assert isinstance(check, CheckToken)
    assert session.tick(60_000) == []
    assert refused(lambda: session.check_token(check, 60_000)).param == "token"
    assert session.tick(60_000) == [Close(CloseCode.NO_HELLO, "no session.start in time")]


@pytest.mark.parametrize("message", [ASK, SessionDelete(), SessionRefresh(token="t"), ResponseCancel(response_id="r")])
def test_any_other_first_message_closes_it_and_nothing_after_it_is_carried_out(message: ClientMessage) -> None:
    session = new()
    effects = session.receive(message, 0)
    assert effects == [Close(CloseCode.NO_HELLO, "the first message must be session.start")]
    assert session.state is SessionState.CLOSED
    assert [session.receive(each, 1) for each in ALL] == [[]] * len(ALL)
    assert session.tick(10**9) == []


@pytest.mark.parametrize(
    ("message", "effects"),
    [
        (ASK, [Ask(ASK, opened().caller)]),
        (ResponseCancel(response_id="r"), [CancelRequest("r", None)]),
        (ResponseCancel(target_event_id="e"), [CancelRequest(None, "e")]),
        (SessionDelete(), [EraseSession()]),
        (START, "already_started"),
        (ResponseCancel(), "invalid_field"),
    ],
)
def test_a_message_becomes_effects_or_is_refused_and_the_session_stays(
    message: ClientMessage, effects: list[object] | str
) -> None:
    session = opened()
    if isinstance(effects, str):
        assert refused(lambda: session.receive(message, 0)).code == effects
    else:
        assert session.receive(message, 0) == effects
    assert session.state is SessionState.OPEN


def test_tokens_are_refused_while_none_are_checked() -> None:
    session = new()
    error = refused(lambda: receive(session, SessionStart(token="t"), 0))
    assert (error.code, error.kind, error.param) == ("tokens_not_supported", "authentication_error", "token")
    assert session.state is SessionState.NEW
    receive(session, SessionStart(token=""), 0)
    assert refused(lambda: receive(session, SessionRefresh(token="t"), 0)).code == "tokens_not_supported"


def test_pings_are_sent_at_every_heartbeat_and_two_unanswered_ones_close() -> None:
    session = opened()
    effects = [session.tick(at) for heartbeat in (25_000, 50_000, 75_000) for at in (heartbeat - 1, heartbeat)]
    gone = Close(CloseCode.NO_PONG, "two pings went unanswered")
    assert effects == [[], [Send(Ping())], [], [Send(Ping())], [], [gone]]


def test_setting_the_clock_back_delays_neither_pings_nor_the_hello_timeout() -> None:
    """By an hour: otherwise a lost client would be noticed an hour later."""
    hour_ms = 3_600_000.0
    session = new(now=hour_ms)
    assert session.tick(hour_ms - 4_999) == []
    assert [type(effect) for effect in session.tick(0)] == [Close]
    session = new(now=hour_ms)
    session.receive(START, hour_ms)
    assert session.tick(0) == [Send(Ping())]
    assert session.tick(24_999) == []
    assert session.tick(25_000) == [Send(Ping())]
    assert session.tick(50_000) == [Close(CloseCode.NO_PONG, "two pings went unanswered")]


def test_any_pong_keeps_it_open_free_of_charge_and_is_no_hello() -> None:
    session = new(per_minute=1)
    assert [session.receive(Pong(), 0) for _ in range(50)] == [[]] * 50
    assert session.state is SessionState.NEW
    session.receive(START, 0)
    for number in range(1, 20):
        assert session.tick(25_000 * number) == [Send(Ping())]
        if number % 2 == 0:
            assert session.receive(Pong(), 25_000 * number + 1) == []


FLOOD = "too many refused messages or pongs"


def test_an_error_event_has_all_fields_of_the_error() -> None:
    error = ProtocolError(
        "rate_limited", "slower", kind="rate_limit_error", param="p", retriable=True, retry_after_ms=5
    )
    assert error_event(error, "e1") == ErrorEvent(
        event_id="e1",
        error=ErrorDetail(
            type="rate_limit_error", code="rate_limited", message="slower", retryable=True, param="p", retry_after_ms=5
        ),
    )


def test_pongs_without_end_close_the_session() -> None:
    session = opened()
    effects = [session.receive(Pong(), 0) for _ in range(200)]
    assert effects == [[]] * 120 + [[Close(CloseCode.FLOOD, FLOOD)]] + [[]] * 79
    assert session.state is SessionState.CLOSED


def test_a_pong_for_each_ping_is_free_for_as_long_as_the_session_lasts() -> None:
    session = opened()
    for number in range(1, 1_000):
        assert session.tick(25_000 * number) == [Send(Ping())]
        assert session.receive(Pong(), 25_000 * number + 1) == []


def test_a_client_that_continues_when_refused_is_closed() -> None:
    """After ten times its messages a minute."""
    session = opened(per_minute=6)
    assert [session.refuse(0) for _ in range(60)] == [None] * 60
    assert session.refuse(0) == Close(CloseCode.FLOOD, FLOOD)
    assert session.refuse(0) is None
    assert session.receive(ASK, 0) == []
