"""How many answers an alarm takes, and how often it is false: rollouts in virtual time, by the controller's policy."""

import pytest

from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.simulate import Traffic, row
from tests.support.rows import Rows

_BASE = 0.01
_BAD = (0.15, 0.2, 0.3, 0.5, 1.0)
_PLAN = Plan(version="0" * 12, champion="1" * 12, steps=(0.01, 0.1, 0.5), salt="simulated")
_ROLLOUTS = 200
_MOST_ROLLED_BACK = 2

ALARM = "rollback: canary answers to the alarm"
FALSE = "A/A: rollouts of the champion against itself"


@pytest.mark.rows(ALARM)
def test_canary_answers_to_the_alarm(rows: Rows, whole: bool) -> None:
    """All that are as bad as this are to be rolled back."""
    found = [row(_PLAN, Traffic(base=_BASE, bad=bad), _ROLLOUTS if whole else 20, seed=1) for bad in _BAD]
    said = [f"{each.bad:.0%}: {each.median} (p90 {each.p90})" for each in found]
    rolled_back = all(each.rolled_back == each.rollouts for each in found)
    rows.found(ALARM, figure=f"{'; '.join(said)}; of {found[0].rollouts} rollouts each", holds=rolled_back)


@pytest.mark.rows(FALSE)
def test_nobody_rolls_back_the_champion_itself(rows: Rows) -> None:
    found = row(_PLAN, Traffic(base=_BASE), _ROLLOUTS, seed=2)
    rows.found(
        FALSE,
        figure=f"{found.rolled_back} of {found.rollouts} rolled back, {_BASE:.0%} of either side's answers bad",
        holds=found.rolled_back <= _MOST_ROLLED_BACK,
    )
