"""Messages of the shadow lane: the answer that a customer got, and its comparison with the shadow's answer."""

from typing import Annotated

from msgspec import Meta

from shared.wire.fields import Count
from shared.wire.outcome import Message, Outcome

Share = Annotated[float, Meta(ge=0.0, le=1.0)]


class LiveAnswer(Message, frozen=True):
    """The answer that a customer got: `request_id` is that of the customer's request, `replaced` the number of parts in
    which the guard replaced a claim without a source. Times start at the gateway's receipt.
    """

    request_id: str
    revision: str
    output_text: str
    output_tokens: Count = 0
    replaced: Count = 0
    ttft_ms: float | None = None
    total_ms: float | None = None

    @classmethod
    def from_outcome(cls, request_id: str, answer: Outcome) -> "LiveAnswer":
        """Return an answer in the form that a shadow's is compared with."""
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

    `same_chars` and `same_tokens` are the part before the first difference, as a share of the longer answer: 1 if they
    are equal. `score` is the share of tokens that both have in the same order, since half precision and batch order may
    change a word without a fault. `unfounded` counts each answer's facts without a source, including those that the
    guard replaced. The shadow's times start at its worker's receipt.
    """

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
