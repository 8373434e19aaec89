"""The limit gives way where workers say nothing by the deadline, and comes back when they do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.admission.concurrency import ConcurrencyBounds, ConcurrencyLimit

BOUNDS = ConcurrencyBounds(lowest=16, highest=2_000)


def second(limit: ConcurrencyLimit, number: int, *, words: int = 20, late: int = 0, inflight: int = 100) -> int:
    """A second of words; the limit once the next one has begun."""
    start = number * 1_000.0
    for word in range(words):
        limit.measured(late=word < late, inflight=inflight, now_unix_ms=start + word)
    return limit.value


def test_it_begins_wide_open() -> None:
    assert ConcurrencyLimit(BOUNDS).value == 2_000


def test_it_falls_from_what_is_in_flight_and_not_from_itself() -> None:
    """From 2,000 a tenth at a time would take half a minute to be felt."""
    limit = ConcurrencyLimit(BOUNDS)
    second(limit, 0, late=10, inflight=100)
    assert second(limit, 1) == 80


def test_it_falls_once_a_second_however_many_are_late() -> None:
    limit = ConcurrencyLimit(BOUNDS)
    values = [second(limit, number, words=500, late=500) for number in range(3)]
    assert values == [2_000, 80, 64]


def test_a_window_is_a_second_from_its_first_word() -> None:
    limit = ConcurrencyLimit(BOUNDS)
    values: list[int] = []
    for now in (0, 999, 1_000, 1_500, 1_999, 2_000):
        limit.measured(late=True, inflight=100, now_unix_ms=now)
        values.append(limit.value)
    assert values == [2_000, 2_000, 80, 80, 80, 64]


@pytest.mark.parametrize(("words", "value"), [(20, 2_000), (19, 80)])
def test_a_straggler_in_twenty_is_no_congestion(words: int, value: int) -> None:
    limit = ConcurrencyLimit(BOUNDS)
    second(limit, 0, words=words, late=1)
    assert second(limit, 1) == value


def test_it_rises_by_its_root_while_half_of_it_is_used() -> None:
    limit = ConcurrencyLimit(ConcurrencyBounds(lowest=100, highest=2_000))
    second(limit, 0, late=20, inflight=10)
    assert [second(limit, number, inflight=inflight) for number, inflight in ((1, 49), (2, 50), (3, 0))] == [
        100,
        100,
        110,
    ]


def test_it_never_falls_below_its_lowest() -> None:
    limit = ConcurrencyLimit(BOUNDS)
    assert min(second(limit, number, late=20) for number in range(60)) == 16


def test_it_comes_back_while_it_is_used() -> None:
    """From the floor to a hundred in a quarter of a minute, to its highest in the end, and never above."""
    limit = ConcurrencyLimit(BOUNDS)
    for number in range(20):
        second(limit, number, late=20, inflight=20)
    assert limit.value == 16
    values = [second(limit, number, inflight=limit.value) for number in range(20, 200)]
    assert values[15] >= 100
    assert values == sorted(values)
    assert values[-1] == 2_000


def test_what_is_not_used_does_not_grow() -> None:
    limit = ConcurrencyLimit(BOUNDS)
    second(limit, 0, late=20)
    fallen = second(limit, 1, inflight=10)
    assert second(limit, 2, inflight=10) == second(limit, 3, inflight=10) == fallen


@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 5_000), st.floats(-1e6, 1e6)), max_size=200),
    st.integers(1, 100),
    st.integers(0, 3_000),
)
def test_it_stays_within_its_bounds(told: list[tuple[bool, int, float]], lowest: int, more: int) -> None:
    limit = ConcurrencyLimit(ConcurrencyBounds(lowest, lowest + more))
    for late, inflight, now in told:
        limit.measured(late=late, inflight=inflight, now_unix_ms=now)
        assert lowest <= limit.value <= lowest + more
