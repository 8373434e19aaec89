"""No request loses the model through a rollout: what its lanes have no time for, the champion's workers answer."""

import pytest

from ops.lab.rollout.capacity import CHAMPIONS, interval, losses, table
from ops.lab.simulate.comparison import Comparison
from ops.traces.costs import CPU
from shared.settings import Settings

SECONDS = 30.0


def at(load: float) -> Comparison:
    return Comparison(loads=(load,), slots=16, seconds=SECONDS, costs=CPU, settings=Settings())


@pytest.mark.parametrize("slower", [1.0, 3.0], ids=["equal", "a third as fast"])
def test_the_champion_answers_what_overloaded_lanes_have_no_time_for(slower: float) -> None:
    """At 50 % both lanes are asked all that three workers are asked without the rollout."""
    [found] = losses(at(0.8), "poisson", [0.5], slower=slower)
    assert found.asked == found.requests
    assert found.own < 0.95 * found.asked  # the lanes are overloaded
    assert found.more <= 0


def test_lanes_with_time_keep_their_questions() -> None:
    for found in losses(at(0.8), "poisson", [0.01, 0.1]):
        assert 0 < found.asked < 0.3 * found.requests
        assert (found.own, found.more <= 0) == (found.asked, True)


def test_an_overloaded_fleet_loses_requests_with_and_without_a_rollout() -> None:
    """The control: what no worker has time for counts as lost."""
    [found] = losses(at(2.0), "poisson", [0.1])
    assert found.without > 0.1 * found.requests
    assert found.with_it > 0.1 * found.requests


def test_a_seed_is_replayed_and_the_table_has_every_seed_and_the_interval() -> None:
    found = losses(at(0.3 / CHAMPIONS), "poisson", [0.1])
    assert found == losses(at(0.3 / CHAMPIONS), "poisson", [0.1])
    assert interval([loss.more_of_all for loss in found]) == (0.0, 0.0, 0.0)
    assert table(found).splitlines()[-1].endswith("more lost: +0.00 % of the requests (+0.00 to +0.00)")
