"""A turn, as a conversation's history keeps it."""

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from shared.wire.outcome import Outcome, Reason, Status, Timings, Usage


class Turn(Outcome, frozen=True, kw_only=True):
    """One question, the outcome of its answer, and how both were written into a prompt, so that they are written so
    again.

    `grounding` are the FAQ entries that the question was answered from, by their texts: an entry that the shop rewrites
    later does not change what was said. `output_ids` are the tokens that the model decoded; they may go on after
    `output_text` ends, where a stop string did. `window_start` is the `request_id` of the first turn in the question's
    prompt, its own where there was none. The last two are empty where no model answered. `generation` is that of the
    conversation in which it was asked (`shared.conversation.erasures`). `concurrent` are the ids of the conversation's
    questions that were open when this one was asked, or when it ended: neither stands in the other's prompt."""

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

    @property
    def ended_unix_ms(self) -> float | None:
        """Return when the answer ended; None if that is not known."""
        return None if self.timings.total_ms is None else self.asked_unix_ms + self.timings.total_ms


encode_turn: Final = msgspec.msgpack.Encoder().encode
decode_turn: Final = msgspec.msgpack.Decoder(Turn).decode
