"""The aim: a day with spare hours lets a worker be asked more at the peak; constant demand does not."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scaling.autoscale.aim import Aim

GOAL, LOW, HIGH, SPARE = 0.96, 0.87, 1.1, 0.08
TEN_MIN = 600_000.0
POINTS = ((0.0, 1.0), (0.4, 0.999), (0.7, 0.986), (0.87, 0.96), (1.0, 0.93), (1.5, 0.76), (3.0, 0.44), (1e9, 0.0))


def share(load: float) -> float:
    (x0, y0), (x1, y1) = next(pair for pair in pairwise(POINTS) if load <= pair[1][0])
    return y0 + (y1 - y0) * (load - x0) / (x1 - x0)


def aim(loads: list[float], start: int = 0) -> Aim:
    found = Aim()
    for number, asked in enumerate([*loads, 0.0], start):
        found.add(number * TEN_MIN, asked)
    return found


def load_of(found: Aim, most: int = 100) -> float:
    return found.load(share, GOAL, LOW, HIGH, most, SPARE)


def day(peak: float) -> list[float]:
    return [peak * (0.6 - 0.4 * math.cos(2 * math.pi * number / 144)) for number in range(144)]


def answered(loads: list[float], load: float) -> float:
    kept = [share(asked / max(1, math.ceil(asked / load - 1e-9))) * asked for asked in loads]
    return sum(kept) / sum(loads)


@pytest.mark.parametrize("peak", [1.0, 3.0, 10.0])
def test_a_day_with_spare_hours_is_asked_more_at_the_peak_and_keeps_the_goal(peak: float) -> None:
    loads = day(peak)
    found = load_of(aim(loads))
    assert LOW < found <= HIGH
    assert answered(loads, found) >= GOAL - 0.01


@pytest.mark.parametrize("peak", [3.0, 8.0])
def test_workers_that_a_shrink_keeps_for_its_spare_count_as_serving(peak: float) -> None:
    """They answer more than the goal, so the day keeps it with fewer at the peak."""
    found = aim(day(peak))
    assert load_of(found) > found.load(share, GOAL, LOW, HIGH, 100, spare=0.0)


@given(st.floats(0.05, 20.0))
def test_constant_demand_is_never_answered_below_the_goal(asked: float) -> None:
    found = load_of(aim([asked] * 144))
    assert share(asked / max(1, math.ceil(asked / found - 1e-9))) >= GOAL


@given(st.lists(st.floats(0.0, 20.0), max_size=200), st.integers(1, 30))
def test_any_demand_gives_a_load_within_the_bounds(loads: list[float], most: int) -> None:
    assert LOW <= load_of(aim(loads), most) <= HIGH


def test_before_six_hours_a_worker_keeps_the_goal_by_itself() -> None:
    assert load_of(aim(day(3.0)[:35])) == LOW


def test_a_day_without_demand_changes_nothing_else() -> None:
    """A record of zeros, written by a leader that saw no gateway."""
    assert LOW <= load_of(aim([0.0] * 144)) <= HIGH
    assert load_of(aim([0.0] * 72 + [3.4] * 144)) == load_of(aim([3.4] * 144))


def test_more_demand_than_the_most_workers_can_carry_is_no_reason_for_fewer() -> None:
    assert load_of(aim(day(20.0)), most=4) == LOW


def test_a_clock_that_jumps_back_and_forth_stops_nothing() -> None:
    found = Aim()
    for number in range(400):
        found.add((number + (-500 if number % 7 == 0 else 900 if number % 5 == 0 else 0)) * TEN_MIN, 2.0)
    assert load_of(found) == pytest.approx(load_of(aim([2.0] * 144)))
