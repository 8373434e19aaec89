"""A deadline passes at the promised moment even if the wall clock is changed, and timestamps follow this clock."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.process.clock import correction_ms, now_unix_ms, observe_wall_clock, wire_unix_ms
from shared.process.process_clock import HELD_MS, NEAR_MS, ProcessClock

START_MS = 1_800_000_000_000.0
EVERY_MS = 500.0
ADOPTED_WITHIN_MS = 5_000.0
JUMPS_MS = st.sampled_from([sign * size for size in (1_000.0, 60_000.0, 3_600_000.0) for sign in (1, -1)])


def observed(clock: ProcessClock, off_ms: float, since_ms: float, until_ms: float) -> float:
    """Read a clock twice a second while its wall clock is off by `off_ms`; return the time of the last reading."""
    passed_ms = since_ms
    while passed_ms < until_ms:
        passed_ms += EVERY_MS
        clock.observe(START_MS + passed_ms + off_ms, passed_ms)
    return passed_ms


def test_the_clock_equals_a_correct_wall_clock() -> None:
    clock = ProcessClock(START_MS)
    assert clock.now(7.0) == START_MS + 7.0
    assert clock.observe(START_MS + 500.25, 500.0) == pytest.approx(0.25)
    assert clock.correction_ms == 0
    assert abs(now_unix_ms() - time.time() * 1_000) < 1_000


@given(st.lists(st.tuples(st.floats(0, 10_000), JUMPS_MS | st.floats(-5_000, 5_000))), st.floats(0, 1e9))
def test_a_changed_wall_clock_does_not_move_the_process_clock(
    readings: list[tuple[float, float]], asked_ms: float
) -> None:
    """The result depends only on the monotonic reading, not on other readers or their order."""
    clock, passed_ms = ProcessClock(START_MS), 0.0
    for later_ms, off_ms in readings:
        passed_ms += later_ms
        clock.observe(START_MS + passed_ms + off_ms, passed_ms)
        assert clock.now(asked_ms) == START_MS + asked_ms
    out_of_order = [1_000.0, 1_005.0, 1_001.0, 1_006.0]
    assert [clock.now(at) - START_MS for at in out_of_order] == out_of_order


@given(st.lists(JUMPS_MS, min_size=1, max_size=5))
def test_a_reset_wall_clock_is_followed_in_timestamps_within_seconds(jumps: list[float]) -> None:
    """It happens twice; each time the clock moves by the full difference, without smaller steps before."""
    clock, passed_ms, off_ms = ProcessClock(START_MS), 0.0, 0.0
    for jump_ms in jumps:
        before_ms, off_ms = off_ms, off_ms + jump_ms
        until_ms = passed_ms + ADOPTED_WITHIN_MS
        while passed_ms < until_ms:
            passed_ms = observed(clock, off_ms, passed_ms, passed_ms + EVERY_MS)
            assert clock.correction_ms in {before_ms, off_ms}
        assert clock.correction_ms == off_ms


@given(JUMPS_MS, st.integers(1, 10))
def test_a_wall_clock_that_jumps_back_immediately_is_not_followed(jump_ms: float, times: int) -> None:
    """A wall clock that never holds a deviation for a second is not followed either."""
    clock, passed_ms = ProcessClock(START_MS), 0.0
    for number in range(times):
        passed_ms = observed(clock, jump_ms, passed_ms, passed_ms + HELD_MS - EVERY_MS)
        passed_ms = observed(clock, number * 2 * NEAR_MS - jump_ms, passed_ms, passed_ms + EVERY_MS)
    assert clock.correction_ms == 0


def test_a_deviation_is_followed_only_if_large_enough_and_constant_for_a_second() -> None:
    clock = ProcessClock(START_MS)
    for passed_ms, off_ms, followed_ms in (
        (0.0, NEAR_MS, 0),
        (HELD_MS, 2 * NEAR_MS, 0),  # another change restarts the second
        (2 * HELD_MS - 1, 2 * NEAR_MS, 0),
        (2 * HELD_MS, 2 * NEAR_MS, 2 * NEAR_MS),
    ):
        clock.observe(START_MS + passed_ms + off_ms, passed_ms)
        assert clock.correction_ms == followed_ms


def test_a_slewing_wall_clock_is_followed_immediately() -> None:
    clock = ProcessClock(START_MS)
    for second in range(1, 11):
        clock.observe(START_MS + second * 1_000 + second * 20, second * 1_000.0)
        assert clock.correction_ms == second * 20


def test_the_deviation_is_reported_while_it_is_not_followed() -> None:
    clock = ProcessClock(START_MS)
    assert clock.observe(START_MS - 60_000, 0.0) == -60_000
    assert clock.observe(START_MS - 59_000, HELD_MS) == 0
    assert clock.observe(START_MS - 57_900, HELD_MS + 1_000) == pytest.approx(100)


def test_the_process_clock_is_observed_and_used_for_timestamps() -> None:
    assert abs(observe_wall_clock()) < 1_000
    assert abs(wire_unix_ms() - now_unix_ms() - correction_ms()) < 100
