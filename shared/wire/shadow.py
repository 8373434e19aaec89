"""The messages of the shadow lane: the answer that a customer had, and how a shadow's answer compares with it."""

from typing import Annotated

from msgspec import Meta

from shared.wire.fields import Count
from shared.wire.outcome import Message, Outcome

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class LiveAnswer(Message, frozen=True):
    """The answer that a customer had: `request_id` is that of its own request, `replaced` how many stretches of it
    stand where its model named what nothing bears out. Its times run from the gateway's receipt."""

    request_id: str
    revision: str
    output_text: str
    output_tokens: Count = 0
    replaced: Count = 0
    ttft_ms: float | None = None
    total_ms: float | None = None

    @classmethod
    def of(cls, request_id: str, answer: Outcome) -> "LiveAnswer":
        """Return an answer as a shadow's is compared with it."""
        return cls(
            request_id=request_id,
            revision=answer.revision or "",
            output_text=answer.output_text,
            output_tokens=answer.usage.output_tokens,
            replaced=len(answer.replaced),
            ttft_ms=answer.timings.ttft_ms,
            total_ms=answer.timings.total_ms,
        )


class Comparison(Message, frozen=True):
    """The comparison of a shadow's answer with the live one.

    `same_chars` and `same_tokens` are the part before the first difference, as a share of the longer answer: 1 where
    they are equal. `score` is the share of tokens that both have in one order: half precision and the order of a batch
    change a word without fault. `unfounded` counts the facts of each that nothing bears out, those that the guard has
    replaced among them. The shadow's times run from its worker's receipt."""

    live_revision: str
    equal: bool
    same_chars: Share
    same_tokens: Share
    score: Share
    live_unfounded: Count
    unfounded: Count
    live_tokens: Count = 0
    tokens: Count = 0
    live_ttft_ms: float | None = None
    live_total_ms: float | None = None
    total_ms: float | None = None
