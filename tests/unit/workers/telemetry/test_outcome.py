"""The outcome of a request is decided by its deadline, independent of the component that ended it."""

import pytest

from shared.wire.deadline import Deadline
from shared.wire.outcome import Reason, Status
from tests.support.builders.worker import NOW, sequence
from workers.schedule.sequence import Finished
from workers.telemetry.outcome import Outcome, outcome_of

SOFT, HARD = int(NOW) + 3_000, int(NOW) + 15_000
DEADLINE = Deadline(first_token_unix_ms=SOFT, deadline_unix_ms=HARD)


@pytest.mark.parametrize(
    ("status", "reason", "first", "now", "outcome"),
    [
        ("completed", "stop", SOFT - 1, HARD - 1, "kept"),
        ("completed", "stop", None, NOW, "kept"),
        ("incomplete", "max_output_tokens", SOFT, HARD - 1, "kept"),
        ("completed", "stop", SOFT + 1, HARD - 1, "missed"),
        ("incomplete", "deadline", SOFT - 1, HARD, "missed"),
        ("incomplete", "infeasible", None, NOW, "missed"),
        ("failed", "internal", SOFT - 1, NOW, "failed"),
        ("failed", "internal", SOFT + 1, HARD, "failed"),
        ("cancelled", "client", None, SOFT - 1, "withdrawn"),
        ("cancelled", "client", SOFT - 1, HARD - 1, "withdrawn"),
        ("cancelled", "client", None, SOFT, "missed"),
        ("cancelled", "client", SOFT - 1, HARD, "missed"),
    ],
)
def test_an_outcome_goes_by_the_deadline(
    status: Status, reason: Reason, first: float | None, now: float, outcome: Outcome
) -> None:
    """A gateway that gave the fallback cancels at the worker: that is a promise missed, not a customer who left. What
    the model is not asked for has no first token."""
    row = sequence(deadline=DEADLINE, shown_unix_ms=first, output_ids=[7] * (first is not None))
    assert outcome_of(Finished(row, status, reason), now) == outcome


@pytest.mark.parametrize(("now", "outcome"), [(SOFT, "kept"), (SOFT + 1, "missed")])
def test_what_is_held_back_until_the_end_is_shown_with_it(now: float, outcome: Outcome) -> None:
    held = sequence(deadline=DEADLINE, first_token_unix_ms=NOW, output_ids=[7])
    assert outcome_of(Finished(held, "completed", "stop"), now) == outcome
