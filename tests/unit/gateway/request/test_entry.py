"""A request goes from state to state forwards only."""

from itertools import pairwise, product

import pytest

from gateway.request.entry import State
from tests.support.builders.gateway import make_entry

EARLY = {(State.COUNTING, State.WAITING), (State.COUNTING, State.STREAMING), (State.PUBLISHING, State.STREAMING)}
LEGAL = {*pairwise(State), *EARLY, *((state, State.DONE) for state in State if state is not State.DONE)}


@pytest.mark.parametrize(("before", "after"), [*product(State, State)])
def test_an_illegal_step_raises_and_changes_nothing(before: State, after: State) -> None:
    """An answer may be told, or end, before Kafka has its question; none goes back, and none ends twice."""
    entry = make_entry(state=before)
    if (before, after) in LEGAL:
        entry.advance(after)
        assert entry.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.name} → {after.name}"):
            entry.advance(after)
        assert entry.state is before
