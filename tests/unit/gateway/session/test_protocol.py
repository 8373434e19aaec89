"""One connection's protocol: hello first, then what the gateway is to do, pongs for pings."""

import pytest

from gateway.session.protocol import Ask, Begin, CancelAsked, Close, CloseCode, Forget, Send, State, error_event
from shared.errors import ProtocolError
from shared.wire.messages import (
    ClientMessage,
    Consent,
    Ping,
    Pong,
    ResponseCancel,
    Resume,
    SessionCreated,
    SessionDelete,
    SessionRefresh,
    SessionStart,
)
from tests.support.fakes.sessions import ALL, ANNOUNCED, ASK, START, new, opened, refused


@pytest.mark.parametrize("handoff", [False, True])
def test_hello_opens_the_session_and_tells_the_limits(handoff: bool) -> None:
    session = new(handoff=handoff)
    assert session.receive(START, 0) == [Begin(None)]
    assert session.created(recovered=False, replayed=0) == SessionCreated(
        session_id="sess_1",
        connection_id="conn_1",
        recovered=False,
        replayed=0,
        limits=ANNOUNCED,
        heartbeat_s=25.0,
        handoff=handoff,
    )
    assert session.state is State.OPEN


def test_a_client_keeps_the_session_that_it_names() -> None:
    session = new()
    assert session.receive(SessionStart(session_id="mine", resume=Resume(cursor="c")), 0) == [
        Begin(Resume(cursor="c"), returns=True)
    ]
    created = session.created(recovered=True, replayed=3)
    assert (created.session_id, created.recovered, created.replayed) == ("mine", True, 3)


@pytest.mark.parametrize("consent", [None, Consent(), Consent(training=True)])
def test_a_session_has_the_consent_that_its_hello_gave_and_no_other(consent: Consent | None) -> None:
    session = new()
    assert session.consent is None
    session.receive(SessionStart(consent=consent), 0)
    assert session.consent == consent


def test_without_hello_in_time_it_is_closed() -> None:
    session = new(now=100)
    assert session.tick(5_099.9) == []
    assert session.tick(5_100) == [Close(CloseCode.NO_HELLO, "no session.start in time")]
    assert session.tick(9_999) == []


def test_a_hello_whose_keys_are_being_fetched_is_not_late() -> None:
    session = new()
    session.hello_came()
    assert session.tick(60_000) == []
    assert session.receive(START, 60_000) == [Begin(None)]


def test_a_hello_that_was_refused_has_not_come() -> None:
    session = new()
    session.hello_came()
    with pytest.raises(ProtocolError):
        session.receive(SessionStart(token="t"), 4_000)
    assert session.tick(5_000) == [Close(CloseCode.NO_HELLO, "no session.start in time")]


@pytest.mark.parametrize("message", [ASK, SessionDelete(), SessionRefresh(token="t"), ResponseCancel(response_id="r")])
def test_another_first_message_than_hello_closes_it(message: ClientMessage) -> None:
    session = new()
    effects = session.receive(message, 0)
    assert effects == [Close(CloseCode.NO_HELLO, "the first message must be session.start")]


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


def test_a_clock_set_back_holds_up_neither_pings_nor_the_wait_for_a_hello() -> None:
    """By an hour: else a client that is gone would be found out an hour later."""
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


def test_any_pong_keeps_it_open() -> None:
    session = opened()
    for number in range(1, 20):
        assert session.tick(25_000 * number) == [Send(Ping())]
        if number % 2 == 0:
            assert session.receive(Pong(), 25_000 * number + 1) == []


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
