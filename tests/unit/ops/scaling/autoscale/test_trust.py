"""The estimate of how much load a worker can carry is corrected only by the share of answers in time."""

import numpy as np
import pytest

from ops.scaling.autoscale.trust import BOUNDS, Trust
from tests.unit.ops.scaling.autoscale.test_policy import curve

GOAL, MINUTE = 0.96, 60_000.0


def learn(trust: Trust, load: float, share: float, minutes: int, *, judged: int = 600, at: int = 0) -> float:
    for minute in range(at, at + minutes):
        trust.note(4 * load, 4, judged, round(judged * share), minute * MINUTE)
    return trust.factor


@pytest.mark.parametrize("true", [0.25, 0.5, 0.8, 1.0, 1.5, 3.0])
def test_it_finds_what_a_worker_really_carries(true: float) -> None:
    trust = Trust(curve, GOAL)
    learn(trust, 0.9 * true, curve(0.9), 200)
    assert trust.factor == pytest.approx(true, rel=0.05)


def test_a_correction_is_bounded_and_a_rise_is_slow() -> None:
    assert learn(Trust(curve, GOAL), 0.9, 0.2, 3) == pytest.approx(0.49)
    assert learn(Trust(curve, GOAL), 0.87, 1.0, 9) <= 1.1
    assert BOUNDS[0] <= learn(Trust(curve, GOAL), 0.9, 0.0, 60) < 0.1


@pytest.mark.parametrize("judged", [5, 60, 2_000])
def test_chance_changes_little(judged: int) -> None:
    """For a day the estimate is right, and answers are late only by chance."""
    random, trust = np.random.default_rng(judged), Trust(curve, GOAL)
    for minute in range(24 * 60):
        trust.note(3.2, 4, judged, int(random.binomial(judged, curve(0.8))), minute * MINUTE)
        assert 0.9 <= trust.factor <= 1.1


def test_more_than_the_goal_is_no_reason_to_grow() -> None:
    """The curve promised 0.999; 0.97 is enough."""
    assert learn(Trust(curve, GOAL), 0.4, 0.97, 60) == 1.0


def test_workers_that_cannot_help_are_not_asked_for_without_end() -> None:
    """One answer in ten is late at any load: more workers bring nothing, and soon no more are wanted."""
    trust, found = Trust(curve, GOAL), 4
    for minute in range(600):
        load = 3.2 / found
        trust.note(3.2, found, 600, round(540 * curve(load)), minute * MINUTE)
        found = max(found, int(3.2 / (0.87 * trust.factor)) + 1)
    assert trust.futile
    assert found <= 10


@pytest.mark.parametrize("counts", [(0, 0), (600, 600)])
def test_nothing_is_learned_of_a_minute_without_answers_or_in_which_workers_came(counts: tuple[int, int]) -> None:
    trust = Trust(curve, GOAL)
    for minute in range(60):
        found = 4 if counts == (0, 0) else 4 + minute % 2
        trust.note(4.0, found, counts[0], counts[1] // 2, minute * MINUTE)
    assert trust.factor == 1.0
