"""A turn as stored in a conversation's history."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from shared.wire.outcome import Origin, Outcome, Reason, Status, Timings, Usage

BY_PERSON: Final = "person_"  # such a turn's `request_id` begins with it


class Turn(Outcome, frozen=True, kw_only=True):
    """One question, its answer's outcome, and how both were written into a prompt, so that later prompts repeat them
    exactly.

    Attributes:
        grounding: the FAQ entries that the answer is based on, with their texts, so that a later edit does not change
            them.
        output_ids: the tokens that the model decoded; with a stop string they may extend beyond `output_text`. Empty if
            no model answered.
        window_start: the `request_id` of the first turn in the question's prompt, or its own if there was none. Empty
            if no model answered.
        generation: the conversation's generation when the question was asked (`shared.conversation.erasures`).
        concurrent: ids of the conversation's questions that were open when this one was asked or ended; neither is in
            the other's prompt.
        origin: which process ended the answer.
    """

    request_id: str
    user: str
    status: Status = "completed"
    reason: Reason = "stop"
    usage: Usage = Usage()
    timings: Timings = Timings()
    asked_unix_ms: int = 0
    output_ids: tuple[Annotated[int, Meta(ge=0)], ...] = ()
    window_start: str | None = None
    generation: int = 0
    concurrent: tuple[str, ...] = ()
    origin: Origin = "worker"

    @property
    def ended_unix_ms(self) -> float | None:
        """Return when the answer ended; None if unknown."""
        return None if self.timings.total_ms is None else self.asked_unix_ms + self.timings.total_ms

    @property
    def by_person(self) -> bool:
        """Whether a person wrote the answer, and not the assistant."""
        return self.request_id.startswith(BY_PERSON)


encode_turn: Final = msgspec.msgpack.Encoder().encode
decode_turn: Final = msgspec.msgpack.Decoder(Turn).decode


def becomes_turn(outcome: Outcome) -> bool:
    """Return whether the process that ended an answer writes its turn right then. A worker that misses a cancel or a
    deadline writes it later."""
    in_time = outcome.status in {"completed", "incomplete"} and outcome.reason != "deadline"
    return in_time and outcome.source != "busy" and bool(outcome.output_text)
