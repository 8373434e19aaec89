"""A canary that is slower than its control is not promoted if it loses more questions, also if others answer them."""

import pytest

from ops.lab.rollout.slow import SlowCanary, rollouts, table
from ops.traces.costs import CPU
from shared.settings import Settings


@pytest.mark.parametrize(
    ("kind", "finished"),
    [
        (SlowCanary(slower=1.0, load=0.8), 1),
        (SlowCanary(slower=1.5, load=0.8, only="short"), 0),
        (SlowCanary(slower=3.0, load=0.8), 0),
    ],
    ids=lambda each: each.name if isinstance(each, SlowCanary) else None,
)
def test_a_slower_version_is_not_promoted_where_it_loses_more_questions(kind: SlowCanary, finished: int) -> None:
    """1.5 times as slow in short questions: it loses 5 % more, which no alarm finds within one step."""
    found = rollouts(kind, CPU, Settings(), [3])
    assert (found.finished, found.wrong) == (finished, 0)
    assert (found.more > 0.04) == (not finished)
    assert table([found]).endswith("0 of 1")
