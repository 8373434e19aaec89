"""What a worker carries, by the scheduler and the admission that serve."""

import pytest

from ops.scaling.autoscale.capacity import Capacity, costs_of, simulate
from ops.traces.costs import CPU
from shared.errors import SettingsError
from shared.settings import Settings


def test_a_worker_carries_most_of_its_time_and_keeps_the_goal_there() -> None:
    found = simulate(costs_of(100.0, Settings(), slots=4), Settings(), slots=4, goal=0.96)
    assert 0.5 < found.carries < 1.0
    assert found.in_time(found.carries) >= 0.96
    shares = [found.in_time(load / 20) for load in range(30)]
    assert shares == sorted(shares, reverse=True)
    assert (shares[0], shares[-1] < 0.96) == (1.0, True)


def test_a_goal_that_no_load_keeps_is_refused_with_the_remedy() -> None:
    with pytest.raises(SettingsError, match=r"--attainment 0.96.*later deadlines"):
        simulate(CPU.times(40.0), Settings(), slots=4, goal=0.96)


def test_what_an_operator_says_holds_as_it_is() -> None:
    given = Capacity.given(0.7)
    assert [given.in_time(load) for load in (0.0, 0.7, 0.71)] == [1.0, 1.0, 0.0]
