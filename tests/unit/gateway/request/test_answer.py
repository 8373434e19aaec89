"""A request goes from state to state forwards only."""

from itertools import pairwise, product

import pytest

from gateway.request.answer import Answer, State
from shared.wire.messages import ReplyDelta

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


def test_a_delta_behind_the_end_adds_nothing() -> None:
    """The end has the whole text. Its client may not have been told yet, after a fault of our own."""
    delta = ReplyDelta(request_id="r1", session_id="s1", attempt=1, seq=0, offset=0, delta="late")
    assert Answer(state=State.STREAMING).place(delta, 0.0) == "late"
    assert not Answer(state=State.DONE).place(delta, 0.0)
