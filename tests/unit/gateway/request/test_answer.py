"""A request goes from state to state forwards only."""

from itertools import pairwise, product

import pytest

from gateway.request.answer import Answer, State

EARLY = {(State.COUNTING, State.WAITING), (State.COUNTING, State.STREAMING), (State.PUBLISHING, State.STREAMING)}
LEGAL = {*pairwise(State), *EARLY, *((state, State.DONE) for state in State if state is not State.DONE)}


@pytest.mark.parametrize(("before", "after"), [*product(State, State)])
def test_an_illegal_step_raises_and_changes_nothing(before: State, after: State) -> None:
    """An answer may be told, or end, before Kafka has its question; none goes back, and none ends twice."""
    answer = Answer(state=before)
    if (before, after) in LEGAL:
        answer.advance(after)
        assert answer.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.name} → {after.name}"):
            answer.advance(after)
        assert answer.state is before
