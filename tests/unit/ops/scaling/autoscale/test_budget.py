"""The goal is kept in the mean of what is answered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scaling.autoscale.budget import Budget

_MINUTE_MS = 60_000.0


@given(st.lists(st.tuples(st.floats(0.5, 8.0), st.floats(0.0, 0.03)), min_size=400, max_size=400))
def test_whatever_comes_the_mean_is_the_goal(minutes: list[tuple[float, float]]) -> None:
    """Each minute answers somewhat more than it was sized for; the mean of them, by what is asked, is the goal."""
    budget = Budget(goal=0.96, spare=0.1)
    asked_in_all = answered = 0.0
    for minute, (asked, more) in enumerate(minutes):
        share = min(1.0, budget.level + more)
        asked_in_all, answered = asked_in_all + asked, answered + asked * share
        budget.note(asked, share, minute * _MINUTE_MS)
        assert 0.86 <= budget.level <= 0.965
    assert answered / asked_in_all == pytest.approx(0.964, abs=0.005)


def test_a_minute_counts_once_and_no_spare_means_the_goal_in_every_moment() -> None:
    budget = Budget(goal=0.96, spare=0.1)
    assert [budget.note(1.0, 1.0, at * 1_000.0) for at in (0, 59, 60, 61, 120)] == [False, False, True, False, True]
    strict = Budget(goal=0.96, spare=0.0)
    assert not any(strict.note(1.0, 1.0, minute * _MINUTE_MS) for minute in range(60))
    assert strict.level == 0.96
