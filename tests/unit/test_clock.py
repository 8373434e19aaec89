"""A deadline that was promised comes when it was promised, whatever is done to the wall clock meanwhile."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.clock import FOLLOWS, JUMPS_MS, SteadyClock, now_unix_ms

START_MS = 1_800_000_000_000.0


def test_it_is_the_wall_clock_where_that_is_right() -> None:
    clock = SteadyClock()
    for passed_ms in (0.0, 0.5, 20.0, 20.0, 86_400_000.0):
        assert clock.read(START_MS + passed_ms, 7.0 + passed_ms) == pytest.approx(START_MS + passed_ms, abs=1e-3)
    assert abs(now_unix_ms() - time.time() * 1_000) < 1_000


@given(
    st.lists(st.tuples(st.floats(0, 10_000), st.floats(-5_000, 5_000)), min_size=1, max_size=50),
)
def test_it_never_goes_back_and_follows_slowly(readings: list[tuple[float, float]]) -> None:
    """`readings`: how long after the last one, and how far the wall clock is off then."""
    clock, passed_ms = SteadyClock(), 0.0
    last = clock.read(START_MS, 0.0)
    for later_ms, off_ms in readings:
        passed_ms += later_ms
        now = clock.read(START_MS + passed_ms + off_ms, passed_ms)
        assert now >= last
        assert now - last == pytest.approx(later_ms, abs=later_ms * FOLLOWS + 0.01)
        last = now


@pytest.mark.parametrize("off_ms", [-5_000.0, 5_000.0, 800.0])
def test_what_the_wall_clock_keeps_to_is_reached(off_ms: float) -> None:
    clock = SteadyClock()
    clock.read(START_MS, 0.0)
    seconds = int(abs(off_ms) / (1_000 * FOLLOWS)) + 1
    for second in range(1, seconds + 1):
        now = clock.read(START_MS + second * 1_000 + off_ms, second * 1_000.0)
    assert now == pytest.approx(START_MS + seconds * 1_000 + off_ms, abs=1e-3)


@pytest.mark.parametrize("off_ms", [-JUMPS_MS - 1_000, JUMPS_MS + 1_000, 3_600_000.0])
def test_a_clock_that_was_set_is_believed_at_once(off_ms: float) -> None:
    clock = SteadyClock()
    clock.read(START_MS, 0.0)
    assert clock.read(START_MS + 10 + off_ms, 10.0) == START_MS + 10 + off_ms
