"""The outcome of one request, as seen by its client. Times are seconds of one monotonic clock. Pure."""

from dataclasses import dataclass
from typing import Final

from shared.wire.lanes import Lane
from shared.wire.outcome import BY_MODEL, Grounding, Reason, Source, Status

UNANSWERED: Final = "unanswered"


@dataclass(slots=True, kw_only=True)
class Outcome:
    """The outcome of one request. Latencies are measured from `scheduled_s`, when it should have been sent, not from
    when it was sent. `eta_ms` is the gateway's prediction; None if the gateway sent the request to no worker or had no
    prediction."""

    scheduled_s: float
    deadline_ms: int
    sent_s: float | None = None
    created_s: float | None = None
    eta_ms: float | None = None
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
    grounding: tuple[Grounding, ...] = ()
    lane: Lane | None = None
    error: str | None = None

    def wrote(self, now_s: float) -> None:
        """Record that text of the answer has arrived."""
        self.last_s = now_s
        if self.first_s is None:
            self.first_s = now_s

    @property
    def by_model(self) -> bool:
        """The model completed the answer, or reached its length limit."""
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
        """A model answer within its deadline, measured from the scheduled time."""
        e2e_ms = self.e2e_ms
        return self.by_model and e2e_ms is not None and e2e_ms <= self.deadline_ms
