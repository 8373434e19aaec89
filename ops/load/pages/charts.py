"""The plots of a load: offered and answered over time, latencies over time, who waited how long. Pure."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, get_args

from ops.load.figures.outcome import Outcome
from ops.measure.quantiles import percentile
from ops.measure.svg import Plot, linear, logarithmic, stacked_bar
from shared.wire.messages import BY_MODEL, Bucket, Source
from shared.wire.topics import BUCKETS

SOURCES: Final[tuple[Source, ...]] = get_args(Source)
# What became of a request: the model's answer in time, its own or mixed, its late or cut one, another's, or none.
IN_TIME: Final = "model, in time"
MIXED: Final = "mixed, in time"
LATE: Final = "model, late or cut"
NONE: Final = "no answer"
ENDS: Final = (IN_TIME, MIXED, LATE, *(source for source in SOURCES if source not in BY_MODEL), NONE)

Latency = Callable[[Outcome], float | None]

_MOST_BINS: Final = 60
_LEAST_BIN_S: Final = 1.0
_MOST_SPECKS: Final = 1_500
_CURVE_POINTS: Final = 200
_LEAST_MS: Final = 0.1
_HEADROOM: Final = 1.6  # above what is marked, for its name
_HEIGHT: Final = 260.0
_RIGHT: Final = 148.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request and what became of it; `at_s` from the load's start."""

    at_s: float
    bucket: Bucket
    outcome: Outcome

    @property
    def end(self) -> str:
        """One of `ENDS`."""
        outcome = self.outcome
        if outcome.done_s is None or outcome.source is None:
            return NONE
        if outcome.source not in BY_MODEL:
            return outcome.source
        if not outcome.good:
            return LATE
        return MIXED if outcome.source == "mixed" else IN_TIME


def ttft(outcome: Outcome) -> float | None:
    return outcome.ttft_ms


def e2e(outcome: Outcome) -> float | None:
    return outcome.e2e_ms


def kind_of(end: str) -> str:
    """The class that gives an end its colour."""
    return "e-" + end.replace(",", "").replace(" ", "-")


def counted(asked: Sequence[Asked]) -> dict[str, int]:
    """Of each of `ENDS`, how many."""
    found = dict.fromkeys(ENDS, 0)
    for one in asked:
        found[one.end] += 1
    return found


def end_bar(asked: Sequence[Asked]) -> str:
    """What became of them, beside each other."""
    return stacked_bar([(number, kind_of(end)) for end, number in counted(asked).items()], width=560.0)


@dataclass(frozen=True, slots=True)
class _Bins:
    """Equal stretches of time from 0 on: at most sixty, of a second at least."""

    width_s: float
    count: int

    @classmethod
    def over(cls, span_s: float) -> "_Bins":
        width_s = max(_LEAST_BIN_S, float(math.ceil(span_s / _MOST_BINS)))
        return cls(width_s, max(1, math.ceil(span_s / width_s + 1e-9)))

    def rates(self, times_s: Sequence[float]) -> list[tuple[float, float]]:
        """(middle of the bin, a second), for each bin."""
        found = [0] * self.count
        for at_s in times_s:
            found[min(self.count - 1, max(0, int(at_s / self.width_s)))] += 1
        return [((place + 0.5) * self.width_s, number / self.width_s) for place, number in enumerate(found)]

    def percentiles(self, points: Sequence[tuple[float, float]], share: float) -> list[tuple[float, float]]:
        """Of the points' y in each bin that has any."""
        within: dict[int, list[float]] = {}
        for at_s, value in points:
            within.setdefault(min(self.count - 1, int(at_s / self.width_s)), []).append(value)
        return [
            ((place + 0.5) * self.width_s, percentile(sorted(values), share))
            for place, values in sorted(within.items())
        ]


def rates(asked: Sequence[Asked], surges: Sequence[tuple[float, float]] = ()) -> str:
    """Requests offered a second, answers, and the model's in time, by when each was asked or ended. `surges` are
    seconds from the start."""
    start_s = min(one.outcome.scheduled_s - one.at_s for one in asked)
    ended = [(one.outcome.done_s - start_s, one) for one in asked if one.outcome.done_s is not None]
    span_s = max([one.at_s for one in asked] + [at_s for at_s, _ in ended])
    bins = _Bins.over(span_s)
    lines = {
        "offered": ("l-offered", bins.rates([one.at_s for one in asked])),
        "answered": ("l-answered", bins.rates([at_s for at_s, _ in ended])),
        "by the model, in time": (kind_of(IN_TIME), bins.rates([at_s for at_s, one in ended if one.outcome.good])),
    }
    plot = Plot(
        linear("seconds from the start", [bins.count * bins.width_s]),
        linear("a second", [rate for _, points in lines.values() for _, rate in points]),
        "Requests offered and answered a second, over time",
        height=_HEIGHT,
        right=_RIGHT,
    )
    for start, end in surges:
        plot.span(start, min(end, span_s))
    for name, (kind, points) in lines.items():
        plot.line(points, kind, name)
    return plot.text()


def latencies(
    asked: Sequence[Asked],
    of: Latency,
    title: str,
    surges: Sequence[tuple[float, float]] = (),
    promise_ms: float | None = None,
) -> str:
    """One latency of the model's answers by when they were asked: each, and p50 and p99 of each stretch of time. Empty
    where the model answered nothing."""
    points = _measured(asked, of)
    if not points:
        return ""
    bins = _Bins.over(max(one.at_s for one in asked))
    values = [value for _, value in points] + ([_HEADROOM * promise_ms] if promise_ms is not None else [])
    plot = Plot(
        linear("asked at, seconds from the start", [bins.count * bins.width_s]),
        logarithmic(f"{title}, ms", values),
        f"{title} over time",
        height=_HEIGHT,
        right=_RIGHT,
    )
    for start, end in surges:
        plot.span(start, min(end, bins.count * bins.width_s))
    if promise_ms is not None:
        plot.level(promise_ms, f"promised: {promise_ms:g} ms")
    plot.specks(points[:: math.ceil(len(points) / _MOST_SPECKS)], kind_of(IN_TIME))
    plot.line(bins.percentiles(points, 0.99), kind_of(LATE), "p99")
    plot.line(bins.percentiles(points, 0.50), kind_of(IN_TIME), "p50")
    return plot.text()


def by_bucket(asked: Sequence[Asked], of: Latency, title: str) -> str:
    """The share of the model's answers that had it by then, a curve for each length of question."""
    found = {
        bucket: [ms for _, ms in _measured([one for one in asked if one.bucket == bucket], of)] for bucket in BUCKETS
    }
    return distribution({(name, f"b-{name}"): values for name, values in found.items()}, title)


def distribution(
    of: Mapping[tuple[str, str], Sequence[float]], title: str, marks: Mapping[str, float] | None = None
) -> str:
    """Curves by (name, kind): how many had it by then; nothing where nobody had. `marks` are named milliseconds."""
    curves = {names: sorted(max(value, _LEAST_MS) for value in values) for names, values in of.items() if values}
    if not curves:
        return ""
    marked = marks or {}
    x = logarithmic(f"{title}, ms", [value for curve in curves.values() for value in curve] + list(marked.values()))
    plot = Plot(x, linear("share", [1.0], most=1.0), f"Distribution: {title}", height=_HEIGHT, right=_RIGHT)
    for label, ms in marked.items():
        plot.mark(ms, label)
    for (name, kind), curve in curves.items():
        shares = sorted(
            {min(len(curve), math.ceil(len(curve) * (step + 1) / _CURVE_POINTS)) for step in range(_CURVE_POINTS)}
        )
        plot.line([(curve[0], 0.0), *((curve[rank - 1], rank / len(curve)) for rank in shares)], kind, name)
    return plot.text()


def _measured(asked: Sequence[Asked], of: Latency) -> list[tuple[float, float]]:
    """(asked at, ms) of the model's answers."""
    return [
        (one.at_s, max(ms, _LEAST_MS)) for one in asked if one.outcome.by_model and (ms := of(one.outcome)) is not None
    ]
