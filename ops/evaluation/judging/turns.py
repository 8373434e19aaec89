"""A question's history as a conversation's turns. Pure."""

from collections.abc import Sequence

from ops.evaluation.judging.questions import Question
from shared.conversation.turn import Turn
from shared.faq import FaqEntry

_APART_MS = 10_000


def turns_of(question: Question, entries: Sequence[FaqEntry], *, name: str, asked_unix_ms: float) -> list[Turn]:
    """The turns before the question, the oldest first; `name` makes their ids. One whose answer is an FAQ entry's word
    for word came from that entry."""
    quoted = {entry.answer: entry.as_grounding() for entry in entries}
    turns: list[Turn] = []
    for number, turn in enumerate(question.history):
        entry = quoted.get(turn.assistant)
        turns.append(
            Turn(
                request_id=f"{name}-{number}",
                user=turn.user,
                assistant=turn.assistant,
                source="faq" if entry is not None else "model",
                asked_unix_ms=int(asked_unix_ms) - _APART_MS * (len(question.history) - number),
                grounding=() if entry is None else (entry,),
            )
        )
    return turns
