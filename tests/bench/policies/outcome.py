"""What became of a trace's requests under a policy, live or simulated, counted alike. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import Struct

from ops.measure.quantiles import Quantiles, quantiles
from ops.simulate.simulator import Ending, Outcome
from ops.traces.trace import Request
from shared.wire.messages import BY_MODEL, Bucket, ReplyDelta, ReplyDone

OURS: Final = "goodput"
# By trace and load: how many times the answers in time of another policy ours gives, at least.
TARGETS: Final[Mapping[tuple[str, float], Mapping[str, float]]] = {
    ("bimodal", 1.5): {"fcfs-continuous": 8.0, "static": 20.0, "edf": 1.5},
    ("burst", 1.0): {"fcfs-continuous": 3.5, "edf": 1.1},
}
MOST_APART: Final = 0.15
"""Of the simulated count from the live one."""
QUIET: Final = 0.05
"""Where processes that are no part of a run take more than this of the cores, it says nothing."""


@dataclass(slots=True, kw_only=True)
class LiveAnswer:
    """One request of a live run. Times are Unix milliseconds; None: it has not happened."""

    request: Request
    due_unix_ms: float
    sent_unix_ms: float | None = None
    first_unix_ms: float | None = None
    done_unix_ms: float | None = None
    done: ReplyDone | None = None

    @property
    def first_token_unix_ms(self) -> int:
        return int(self.due_unix_ms) + self.request.first_token_ms

    @property
    def deadline_unix_ms(self) -> int:
        return int(self.due_unix_ms) + self.request.deadline_ms

    def take(self, reply: ReplyDelta | ReplyDone, now_unix_ms: float) -> None:
        """The first text and the first terminal event count; what an answer's end brings is text, too."""
        if self.done is not None:
            return
        if self.first_unix_ms is None:
            self.first_unix_ms = now_unix_ms
        if isinstance(reply, ReplyDone):
            self.done, self.done_unix_ms = reply, now_unix_ms

    @property
    def whole(self) -> bool:
        """The model came to its end, or as far as was asked."""
        done = self.done
        if done is None or done.source not in BY_MODEL:
            return False
        return done.status == "completed" or (done.status, done.reason) == ("incomplete", "max_output_tokens")

    @property
    def begun(self) -> bool:
        """The model wrote something."""
        if self.done is None:
            return self.first_unix_ms is not None
        return self.done.source in BY_MODEL and self.done.usage.output_tokens > 0

    @property
    def stopped_early(self) -> bool:
        """The model ended it before it was as long as in the trace."""
        return self.whole and self.done is not None and self.done.usage.output_tokens < self.request.output_tokens

    @property
    def wrong_length(self) -> bool:
        """The worker counted the prompt, and otherwise than the trace."""
        return self.done is not None and self.done.usage.input_tokens not in {0, self.request.prompt_tokens}

    @property
    def outcome(self) -> Outcome:
        """As the simulator has it; what is not answered at all is late."""
        if self.whole and self.first_unix_ms is not None and self.done_unix_ms is not None:
            in_time = self.first_unix_ms <= self.first_token_unix_ms and self.done_unix_ms <= self.deadline_unix_ms
            return Outcome.IN_DEADLINE if in_time else Outcome.LATE
        if self.done is None or self.begun:
            return Outcome.LATE
        return Outcome.FALLBACK


class Counts(Struct, frozen=True, kw_only=True):
    """Of the requests `model_late`, `unanswered` ones had no terminal event when the run ended.

    TTFT runs from the scheduled arrival, of every answer that the model began, late ones too.
    """

    requests: int
    model_in_deadline: int
    model_late: int
    fallback: int
    unanswered: int
    in_deadline_by_bucket: dict[Bucket, int]
    ttft_ms: Quantiles


def count_live(answers: Sequence[LiveAnswer]) -> Counts:
    ttfts = [
        answer.first_unix_ms - answer.due_unix_ms
        for answer in answers
        if answer.begun and answer.first_unix_ms is not None
    ]
    return _counts(
        [(answer.request, answer.outcome) for answer in answers],
        unanswered=sum(answer.done is None for answer in answers),
        ttfts_ms=ttfts,
    )


def count_simulated(endings: Sequence[Ending]) -> Counts:
    ttfts = [
        ending.first_token_ms - ending.request.arrival_ms for ending in endings if ending.first_token_ms is not None
    ]
    return _counts([(ending.request, ending.outcome) for ending in endings], unanswered=0, ttfts_ms=ttfts)


def _counts(endings: Sequence[tuple[Request, Outcome]], *, unanswered: int, ttfts_ms: Iterable[float]) -> Counts:
    outcomes = Counter(outcome for _, outcome in endings)
    buckets = dict.fromkeys(sorted({request.bucket for request, _ in endings}), 0)
    for request, outcome in endings:
        buckets[request.bucket] += outcome is Outcome.IN_DEADLINE
    return Counts(
        requests=len(endings),
        model_in_deadline=outcomes[Outcome.IN_DEADLINE],
        model_late=outcomes[Outcome.LATE],
        fallback=outcomes[Outcome.FALLBACK],
        unanswered=unanswered,
        in_deadline_by_bucket=buckets,
        ttft_ms=quantiles(ttfts_ms),
    )


def ratio(ours: Counts | None, others: Counts) -> float | None:
    """How many times the others' answers in time we give; none at all counts as one. None: ours was not run."""
    return None if ours is None else round(ours.model_in_deadline / max(others.model_in_deadline, 1), 3)


def quotient(simulated: Counts, live: Counts) -> float | None:
    """Answers in time, simulated by live; None where none was given live."""
    return round(simulated.model_in_deadline / live.model_in_deadline, 4) if live.model_in_deadline else None
