"""How many answers an alarm takes, how often it is false, and what a rollout costs customers: in virtual time, by the
product's own code."""

import pytest

from ops.lab.rollout.capacity import SHARES, interval, trials
from ops.lab.rollout.trials import PLAN, equal, row, worse
from ops.lab.simulate.comparison import Comparison
from ops.traces.costs import CPU
from shared.settings import Settings
from tests.support.rows import Rows
from tests.unit.ops.lifecycle.rollout.test_evidence import answers_to_the_alarm

_RATE = 2.0
_MOST_FALSE = 0.05
_MOST_CUSTOMERS = 25
_GOOD = (0, 1_000, 200_000)
_MOST_ANSWERS = {1.0: 6, 0.3: 38}

ALARM = "rollback: canary answers to the alarm"
LATE = "rollback: answers to the alarm after good ones"
CLASS = "rollback: a canary that is bad in one class only"
CAPACITY = "capacity: requests that lose the model through a rollout"
FALSE = "A/A: rollouts of the champion against itself"


@pytest.mark.rows(ALARM)
def test_canary_answers_to_the_alarm(rows: Rows, whole: bool) -> None:
    """All that are as bad as this are to be rolled back."""
    kinds = [traffic for traffic in worse(_RATE) if not traffic.only]
    found = [row(PLAN, traffic, 200 if whole else 20, seed=1) for traffic in kinds]
    said = [f"{each.name}: {each.median} (p90 {each.p90})" for each in found]
    rolled_back = all(each.rolled_back == each.rollouts for each in found)
    rows.found(ALARM, figure=f"{'; '.join(said)}; of {found[0].rollouts} rollouts each", holds=rolled_back)


@pytest.mark.rows(LATE)
def test_late_damage_is_found_as_fast_as_early_damage(rows: Rows) -> None:
    found = {bad: [answers_to_the_alarm(good, bad, 250) for good in _GOOD] for bad in _MOST_ANSWERS}
    said = [f"{bad:.0%} bad: {', '.join(map(str, counts))}" for bad, counts in found.items()]
    rows.found(
        LATE,
        figure=f"{'; '.join(said)} answers after {', '.join(f'{good:,}' for good in _GOOD)} good ones",
        holds=all(max(counts) <= _MOST_ANSWERS[bad] for bad, counts in found.items()),
    )


@pytest.mark.rows(CLASS)
def test_a_canary_that_is_bad_in_one_class_is_never_promoted(rows: Rows, whole: bool) -> None:
    """A bucket, a language or a tenant with 1, 2 or 5 % of the questions."""
    kinds = [traffic for traffic in worse(_RATE) if traffic.only]
    found = [row(PLAN, traffic, 100 if whole else 10, seed=3) for traffic in kinds]
    promoted, failed = sum(each.promoted for each in found), max(each.failed or 0 for each in found)
    rows.found(
        CLASS,
        figure=f"{promoted} of {sum(each.rollouts for each in found)} promoted; {failed} customers failed (p90)",
        holds=not promoted and failed <= _MOST_CUSTOMERS,
    )


@pytest.mark.rows(FALSE)
def test_the_champion_itself_is_not_rolled_back(rows: Rows, whole: bool) -> None:
    """Both sides fail alike: never, always, in outages; conversations are long, or have just been moved."""
    found = [row(PLAN, traffic, 1_000 if whole else 25, seed=2) for traffic in equal(_RATE)]
    said = [f"{each.name.removeprefix('equal, ')}: {each.rolled_back}" for each in found]
    rows.found(
        FALSE,
        figure=f"{'; '.join(said)}; of {found[0].rollouts} each",
        holds=all(each.rolled_back <= _MOST_FALSE * each.rollouts for each in found),
    )


@pytest.mark.rows(CAPACITY)
def test_no_customer_loses_the_model_through_a_rollout(rows: Rows, whole: bool) -> None:
    """Three workers of the champion at 0.8 of their capacity, one of the canary, one of its control. At 50 % these two
    are asked everything, which is 1.2 times what they can serve."""
    experiment = Comparison(loads=(0.8,), slots=16, seconds=60.0, costs=CPU, settings=Settings())
    found = {trace: trials(experiment, trace, SHARES, range(1, 11 if whole else 4)) for trace in ("poisson", "bimodal")}
    said, more = [], []
    for trace, losses in found.items():
        for share in SHARES:
            each = [loss for loss in losses if loss.share == share]
            mean, low, high = (100 * bound for bound in interval([loss.more_of_all for loss in each]))
            said.append(f"{trace} at {share:.0%}: {mean:+.2f} % ({low:+.2f} to {high:+.2f})")
            more.append(sum(loss.more for loss in each))
    last = [loss for loss in found["poisson"] if loss.share == SHARES[-1]]
    rows.found(
        CAPACITY,
        figure=f"{'; '.join(said)}; {len(last)} seeds",
        holds=max(more) <= 0 and all(loss.own < loss.asked for loss in last),
    )
