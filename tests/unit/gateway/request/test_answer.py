"""A request's state only moves forward."""

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
    """An answer may be received, or end, before Kafka has its question; no state goes back, and none ends twice."""
    answer = Answer(state=before)
    if (before, after) in LEGAL:
        answer.advance(after)
        assert answer.state is after
    else:
        with pytest.raises(AssertionError, match=f"{before.name} → {after.name}"):
            answer.advance(after)
        assert answer.state is before


def test_a_delta_behind_the_end_adds_nothing() -> None:
    """The end has the whole text. After an internal fault its client may not have received it yet."""
    delta = ReplyDelta(request_id="r1", session_id="s1", attempt=1, seq=0, offset=0, delta="late")
    assert Answer(state=AnswerState.STREAMING, created=True).place(delta, 0.0) == "late"
    assert not Answer(state=AnswerState.DONE, done=True).place(delta, 0.0)
