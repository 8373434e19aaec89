"""What became of one request, as its client saw it. Times are seconds of one monotonic clock. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.wire.messages import BY_MODEL, Reason, Source, Status

UNANSWERED: Final = "unanswered"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """`scheduled_s` is when it should have been sent: latencies run from there, not from when it was."""

    scheduled_s: float
    deadline_ms: int
    sent_s: float | None = None
    created_s: float | None = None
    first_s: float | None = None
    last_s: float | None = None
    done_s: float | None = None
    source: Source | None = None
    status: Status | None = None
    reason: Reason | None = None
    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    text: str = ""
    error: str | None = None

    def wrote(self, now_s: float) -> None:
        """Some text of it has come."""
        self.last_s = now_s
        if self.first_s is None:
            self.first_s = now_s

    @property
    def by_model(self) -> bool:
        """The model wrote it to its end, or as far as was asked."""
        ended = self.status == "completed" or (self.status == "incomplete" and self.reason == "max_output_tokens")
        return self.source in BY_MODEL and ended

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_s is None else (self.first_s - self.scheduled_s) * 1_000

    @property
    def e2e_ms(self) -> float | None:
        return None if self.done_s is None else (self.done_s - self.scheduled_s) * 1_000

    @property
    def tpot_ms(self) -> float | None:
        if self.first_s is None or self.last_s is None or self.output_tokens <= 1:
            return None
        return (self.last_s - self.first_s) * 1_000 / (self.output_tokens - 1)

    @property
    def good(self) -> bool:
        """A model answer within its deadline, counted from the scheduled time."""
        e2e_ms = self.e2e_ms
        return self.by_model and e2e_ms is not None and e2e_ms <= self.deadline_ms


def tokens_between(outcomes: Sequence[Outcome], start_s: float, stop_s: float) -> float:
    """Model tokens written within a window.

    Of an answer that reaches over its edge it is the share of the time in which it was written.
    """
    total = 0.0
    for outcome in outcomes:
        if not outcome.by_model or outcome.done_s is None or not outcome.output_tokens:
            continue
        first_s = outcome.first_s if outcome.first_s is not None else outcome.done_s
        length_s = outcome.done_s - first_s
        if length_s <= 0:
            total += outcome.output_tokens if start_s <= first_s < stop_s else 0
            continue
        inside_s = min(outcome.done_s, stop_s) - max(first_s, start_s)
        total += outcome.output_tokens * max(0.0, inside_s) / length_s
    return total


def steady_tokens_per_s(outcomes: Sequence[Outcome], warmup: int) -> float:
    """Of a closed loop while every client has work: from the first measured request to the last one's sending."""
    start_s, stop_s = outcomes[warmup].scheduled_s, outcomes[-1].scheduled_s
    return tokens_between(outcomes, start_s, stop_s) / (stop_s - start_s) if stop_s > start_s else 0.0
