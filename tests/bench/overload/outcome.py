"""What became of a request under overload, as its client saw it; by phase of the load. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from msgspec import Struct

from ops.measure.quantiles import Quantiles, percentile, quantiles
from shared.wire.messages import BY_MODEL, Reason, Source, Status

WARM_UP: Final = "warm-up"
BEFORE: Final = "half"
MOST: Final = "10×"
AFTER: Final = "half again"
LOADS: Final = ((WARM_UP, 0.5), (BEFORE, 0.5), ("1.5×", 1.5), ("3×", 3.0), (MOST, 10.0), (AFTER, 0.5))
"""The phases in their order, each with its load in multiples of the capacity."""
RECOVERED_WITHIN: Final = 0.10
"""Of the model's share and of the TTFT before the overload."""
_BUCKET_S: Final = 1.0
_CALM_BUCKETS: Final = 3
# The gateway's deadlines are whole milliseconds, rounded down.
_ROUNDING_MS: Final = 2.0
_THOUSANDTH: Final = 0.999


class Ending(Enum):
    """`AT_ONCE`: by the gateway, without the workers. `GIVEN_UP`: the fallback, after a worker said that it would not.
    `SOFT_DEADLINE`: the fallback, when the first token's time was over. `LATE`: by the model, cut or past the deadline.
    """

    IN_TIME = "in_time"
    LATE = "late"
    AT_ONCE = "at_once"
    GIVEN_UP = "given_up"
    SOFT_DEADLINE = "soft_deadline"
    REFUSED = "refused"
    MISSING = "missing"


@dataclass(slots=True, kw_only=True)
class Asked:
    """One request. Times are seconds of one monotonic clock; None: it has not happened. `terminals` counts its
    terminal events, and `predicted` says that `response.created` told a first token's time: the workers got it. A
    refusal has both `error` and `done_s`; with an `error` alone its connection was lost."""

    due_s: float
    first_token_ms: int
    deadline_ms: int
    sent_s: float | None = None
    created_s: float | None = None
    predicted: bool = False
    first_s: float | None = None
    done_s: float | None = None
    terminals: int = 0
    source: Source | None = None
    status: Status | None = None
    reason: Reason | None = None
    error: str | None = None

    @property
    def ttft_ms(self) -> float | None:
        return None if self.first_s is None else (self.first_s - self.due_s) * 1_000

    @property
    def took_ms(self) -> float | None:
        """To its terminal event, or to its refusal."""
        return None if self.done_s is None else (self.done_s - self.due_s) * 1_000

    @property
    def late_ms(self) -> float | None:
        """Its terminal event after its deadline; negative where it came before. None where it was refused."""
        took_ms = self.took_ms
        return None if took_ms is None or self.error is not None else took_ms - self.deadline_ms

    @property
    def ending(self) -> Ending:
        took_ms = self.took_ms
        if took_ms is None:
            return Ending.MISSING
        if self.error is not None:
            return Ending.REFUSED
        if self.source in BY_MODEL:
            whole = self.status == "completed" or (self.status, self.reason) == ("incomplete", "max_output_tokens")
            return Ending.IN_TIME if whole and took_ms <= self.deadline_ms else Ending.LATE
        if not self.predicted:
            return Ending.AT_ONCE
        waited = took_ms >= self.first_token_ms - _ROUNDING_MS
        return Ending.SOFT_DEADLINE if waited else Ending.GIVEN_UP


class Lateness(Struct, frozen=True, kw_only=True):
    """Terminal events after their deadlines, in ms; negative: before. None where there was none."""

    p999: float | None = None
    max: float | None = None


class PhaseRow(Struct, frozen=True, kw_only=True):
    """One phase. Counts, latencies and lateness are of the requests due in it, from when they were due; `in_time_per_s`
    is of the model's answers in time that ended in it. `after_soft_ms` is how much later than the first token's time
    the fallback came that waited for it. `by_reason`: the fallbacks that the gateway counted meanwhile, by its own
    reasons. `cpu`: by process, in cores."""

    phase: str
    load: float
    rate: float
    seconds: float
    requests: int
    endings: dict[str, int]
    errors: dict[str, int]
    repeated: int
    in_time_per_s: float
    ttft_ms: Quantiles
    at_once_ms: Quantiles
    given_up_ms: Quantiles
    after_soft_ms: Quantiles
    late_ms: Lateness
    send_lag_ms: Quantiles
    by_reason: dict[str, int]
    cpu: dict[str, float]


class Overload(Struct, frozen=True, kw_only=True):
    """`capacity_per_s`: model answers a second with every slot full. `recovery_s`: None where it did not recover within
    the last phase. `kept_share`: the model's answers in time a second, the worst by the best at a smaller load.
    `late_ms`, `missing` and `repeated` are of every request of the run; so are `begun` and `begun_late`, as the worker
    counts them: whose first engine step was made at all, and made after the first token was due."""

    capacity_per_s: float
    connections: int
    first_token_ms: int
    deadline_ms: int
    phases: list[PhaseRow]
    recovery_s: float | None
    kept_share: float
    late_ms: Lateness
    missing: int
    repeated: int
    begun: int
    begun_late: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """`load` in multiples of capacity, `rate` in requests a second; from `start_s` of the monotonic clock."""

    name: str
    load: float
    rate: float
    start_s: float
    seconds: float

    @property
    def end_s(self) -> float:
        return self.start_s + self.seconds

    def holds(self, at_s: float | None) -> bool:
        return at_s is not None and self.start_s <= at_s < self.end_s


def summarise(
    rows: Sequence[PhaseRow],
    phases: Sequence[Phase],
    everything: Sequence[Asked],
    *,
    capacity_per_s: float,
    connections: int,
    first_token_ms: int,
    deadline_ms: int,
    begun: int,
    begun_late: int,
) -> Overload:
    """Of the whole run; `phases` are those of `LOADS`, and `everything` has its capacity's measurement too."""
    named = {phase.name: phase for phase in phases}
    rising = sorted((row for row in rows if row.phase not in {WARM_UP, AFTER}), key=lambda row: row.load)
    return Overload(
        capacity_per_s=round(capacity_per_s, 3),
        connections=connections,
        first_token_ms=first_token_ms,
        deadline_ms=deadline_ms,
        phases=list(rows),
        recovery_s=recovery_s(named[BEFORE], named[AFTER], everything),
        kept_share=kept_share([row.in_time_per_s for row in rising]),
        late_ms=lateness(everything),
        missing=sum(one.ending is Ending.MISSING for one in everything),
        repeated=sum(one.terminals > 1 for one in everything),
        begun=begun,
        begun_late=begun_late,
    )


def row_of(
    phase: Phase, everything: Sequence[Asked], *, by_reason: Mapping[str, int], cpu: Mapping[str, float]
) -> PhaseRow:
    """`everything` that was asked in the run: an answer may end in another phase than its request was due in."""
    asked = [one for one in everything if phase.holds(one.due_s)]
    endings = Counter(one.ending for one in asked)
    in_time = sum(one.ending is Ending.IN_TIME and phase.holds(one.done_s) for one in everything)
    soft = [one for one in asked if one.ending is Ending.SOFT_DEADLINE]
    return PhaseRow(
        phase=phase.name,
        load=phase.load,
        rate=round(phase.rate, 2),
        seconds=round(phase.seconds, 3),
        requests=len(asked),
        endings={ending.value: endings[ending] for ending in Ending},
        errors=dict(Counter(one.error for one in asked if one.error is not None)),
        repeated=sum(one.terminals > 1 for one in asked),
        in_time_per_s=round(in_time / phase.seconds, 3),
        ttft_ms=quantiles(_known(one.ttft_ms for one in asked if one.ending is Ending.IN_TIME)),
        at_once_ms=quantiles(_known(one.took_ms for one in asked if one.ending in {Ending.AT_ONCE, Ending.REFUSED})),
        given_up_ms=quantiles(_known(one.took_ms for one in asked if one.ending is Ending.GIVEN_UP)),
        after_soft_ms=quantiles((one.took_ms or 0.0) - one.first_token_ms for one in soft),
        late_ms=lateness(asked),
        send_lag_ms=quantiles((one.sent_s - one.due_s) * 1_000 for one in asked if one.sent_s is not None),
        by_reason=dict(by_reason),
        cpu={name: round(cores, 3) for name, cores in cpu.items()},
    )


def lateness(asked: Iterable[Asked]) -> Lateness:
    ordered = sorted(_known(one.late_ms for one in asked))
    if not ordered:
        return Lateness()
    return Lateness(p999=round(percentile(ordered, _THOUSANDTH), 3), max=round(ordered[-1], 3))


def recovery_s(before: Phase, after: Phase, everything: Sequence[Asked]) -> float | None:
    """Seconds from the start of `after`, at the load of `before`, until it is as it was `before` again: from there on,
    in each of three seconds, the model's share of the requests due in it and the P99 of their TTFT are within a tenth
    of those of the whole of `before`. None: not within the phase, or there is nothing to compare with."""
    usual = [one for one in everything if before.holds(one.due_s)]
    share, ttft_ms = _share(usual), _ttft_p99_ms(usual)
    if ttft_ms is None:
        return None
    buckets: list[list[Asked]] = [[] for _ in range(int(after.seconds / _BUCKET_S))]
    for one in everything:
        place = int((one.due_s - after.start_s) // _BUCKET_S)
        if 0 <= place < len(buckets):
            buckets[place].append(one)

    def calm(bucket: Sequence[Asked]) -> bool:
        p99 = _ttft_p99_ms(bucket)
        as_fast = p99 is not None and p99 <= ttft_ms * (1 + RECOVERED_WITHIN)
        return not bucket or (as_fast and _share(bucket) >= share * (1 - RECOVERED_WITHIN))

    calms = [calm(bucket) for bucket in buckets]
    for place in range(len(calms) - _CALM_BUCKETS + 1):
        if all(calms[place : place + _CALM_BUCKETS]):
            return place * _BUCKET_S
    return None


def kept_share(rates: Sequence[float]) -> float:
    """The worst of answers a second by what a smaller load gave at most. `rates` are in the order of rising load; 1
    where none is below those before it."""
    most, worst = 0.0, 1.0
    for rate in rates:
        worst = min(worst, rate / most) if most else worst
        most = max(most, rate)
    return round(worst, 4)


def _share(asked: Sequence[Asked]) -> float:
    return sum(one.ending is Ending.IN_TIME for one in asked) / len(asked) if asked else 0.0


def _ttft_p99_ms(asked: Sequence[Asked]) -> float | None:
    ordered = sorted(_known(one.ttft_ms for one in asked if one.ending is Ending.IN_TIME))
    return percentile(ordered, 0.99) if ordered else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
