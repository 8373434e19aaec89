"""A request goes from state to state forwards only."""

from itertools import pairwise, product

import pytest

from gateway.request.answer import Answer, AnswerState
from shared.wire.messages import ReplyDelta

EARLY = {
    (AnswerState.COUNTING, AnswerState.WAITING),
    (AnswerState.COUNTING, AnswerState.STREAMING),
    (AnswerState.PUBLISHING, AnswerState.STREAMING),
}
LEGAL = {
    *pairwise(AnswerState),
    *EARLY,
    *((state, AnswerState.DONE) for state in AnswerState if state is not AnswerState.DONE),
}


@pytest.mark.parametrize(("before", "after"), [*product(AnswerState, AnswerState)])
def test_an_illegal_step_raises_and_changes_nothing(before: AnswerState, after: AnswerState) -> None:
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
    assert Answer(state=AnswerState.STREAMING).place(delta, 0.0) == "late"
    assert not Answer(state=AnswerState.DONE).place(delta, 0.0)
