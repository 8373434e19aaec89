"""A connection's messages pass at their rate: exact to one, refused with the time to wait."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.session.effects import Ask
from shared.errors import ProtocolError
from tests.support.fakes.sessions import ASK, START, new, opened, refused


def test_a_minutes_worth_may_come_immediately_and_the_next_waits() -> None:
    session = new(per_minute=6)
    session.receive(START, 0)
    for _ in range(5):
        session.receive(ASK, 0)
    error = refused(lambda: session.receive(ASK, 0))
    assert (error.code, error.kind, error.retriable) == ("rate_limited", "rate_limit_error", True)
    assert error.retry_after_ms is not None
    assert 10_000 <= error.retry_after_ms <= 10_001
    assert refused(lambda: session.receive(ASK, 4_000)).retry_after_ms in {6_000, 6_001}
    assert refused(lambda: session.receive(ASK, 9_999)).code == "rate_limited"
    assert session.receive(ASK, error.retry_after_ms) == [Ask(ASK, session.caller)]


@given(st.integers(1, 200), st.lists(st.floats(0, 30_000), min_size=1, max_size=300))
def test_the_rate_is_exact_to_one(per_minute: int, pauses: list[float]) -> None:
    """Of messages at any times, as many pass as the minute's worth and its refill allow, less one at most."""
    session, now, passed, refusals = opened(per_minute), 0.0, 1, 0
    for pause in pauses:
        now += pause
        try:
            session.rate.spend(now)
            passed += 1
        except ProtocolError:
            refusals += 1
        assert passed <= per_minute + now * per_minute / 60_000 + 1e-6
    if not refusals:
        assert passed == len(pauses) + 1


@given(st.integers(1, 200), st.integers(1, 10))
def test_a_client_that_sends_constantly_gets_its_full_rate(per_minute: int, minutes: int) -> None:
    session, now, passed = opened(per_minute), 0.0, 1
    step = 60_000 / per_minute / 4
    while now < 60_000 * minutes and passed < 2_000:
        try:
            session.rate.spend(now)
            passed += 1
        except ProtocolError:
            now += step
    # One for the message that is only partly earned, a quarter for the step of the clock here.
    assert abs(passed - (per_minute + now * per_minute / 60_000)) <= 1.25 + 1e-6


@given(st.integers(1, 200), st.sampled_from([0, 3_600_000]))
def test_the_wait_is_exact_to_the_millisecond_even_with_a_clock_set_back(per_minute: int, began: int) -> None:
    session = new(per_minute, began)
    for _ in range(per_minute):
        session.rate.spend(began)
    wait_ms = refused(lambda: session.rate.spend(0)).retry_after_ms
    assert wait_ms is not None
    assert wait_ms <= 60_000 / per_minute + 1
    with pytest.raises(ProtocolError):
        session.rate.spend(wait_ms - 2)
    session.rate.spend(wait_ms)
