"""Random traces: when requests arrive, in multiples of the machine's capacity. Pure; determined by a seed.

The machine's capacity for a mix is one request per mean least machine time (`LeastWork`). `load` 1.0 offers exactly
that in `poisson`, `bimodal`, `heavy` and `spread`, and on average in `diurnal` and `sessions`. The rates of `burst`,
`surge` and `promotion` are multiplied by it; at 1.0 they are as described below.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

import msgspec

from ops.traces.conversations import conversations
from ops.traces.least_work import LeastWork
from ops.traces.mixes import Draw, Promise, bimodal, heavy, held, shop, spread
from ops.traces.trace import Request, Trace

_SAMPLE: Final = 8_192
_MINUTE_MS: Final = 60_000.0
_BURST_START_MS: Final = 20_000.0
_BURST_MS: Final = 10_000.0
_SURGE_MOST_MS: Final = 3_600_000.0
_CLIMB_MS: Final = 10_000.0
_FALL_MS: Final = 60_000.0

Rate = Callable[[float], float]
Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Arrivals over time: `rate(t)`, at most `peak`, in multiples of the load. `surges` are the spans of higher
    load."""

    rate: Rate
    peak: float
    surges: Spans = ()


def steady(_span_ms: float) -> Pattern:
    return Pattern(rate=lambda _t: 1.0, peak=1.0)


def burst(span_ms: float) -> Pattern:
    """0.6 of capacity, and five times that for 10 s of each minute, starting at its 20th second."""
    starts = [_BURST_START_MS + _MINUTE_MS * minute for minute in range(math.ceil(span_ms / _MINUTE_MS))]
    surges = tuple((start, min(start + _BURST_MS, span_ms)) for start in starts if start < span_ms)

    def rate(t: float) -> float:
        return 3.0 if _BURST_START_MS <= t % _MINUTE_MS < _BURST_START_MS + _BURST_MS else 0.6

    return Pattern(rate=rate, peak=3.0, surges=surges)


def surge(span_ms: float) -> Pattern:
    """Half of capacity, and nine times that (+800 %) for an hour, or for the middle three fifths of a shorter trace."""
    start = span_ms / 5
    end = start + min(_SURGE_MOST_MS, span_ms * 3 / 5)
    return Pattern(rate=lambda t: 4.5 if start <= t < end else 0.5, peak=4.5, surges=((start, end),))


def promotion(span_ms: float) -> Pattern:
    """0.4 of capacity. After a third of the trace it rises to five times that within 10 s, for another third, and falls
    again within 60 s."""
    start, end = span_ms / 3, span_ms * 2 / 3
    climb_ms, fall_ms = min(_CLIMB_MS, span_ms / 6), min(_FALL_MS, span_ms / 6)

    def rate(t: float) -> float:
        up, down = (t - start) / climb_ms, 1 - (t - end) / fall_ms
        return 0.4 + 1.6 * max(0.0, min(1.0, up, down))

    return Pattern(rate=rate, peak=2.0, surges=((start, end + fall_ms),))


def diurnal(span_ms: float) -> Pattern:
    """Return a day compressed to the trace's length: 0.2 of the load at night, 1.8 at noon."""
    return Pattern(rate=lambda t: 1.0 - 0.8 * math.cos(2 * math.pi * t / span_ms), peak=1.8)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a trace is made: its arrivals, and its requests given the product's deadlines on this machine. With
    `conversations`, conversations arrive at a steady rate, each with several requests."""

    pattern: Callable[[float], Pattern]
    mix: Callable[[Promise], Draw]
    conversations: bool = False


KINDS: Final = {
    "poisson": Kind(steady, shop),
    "bimodal": Kind(steady, lambda _promise: bimodal()),
    "burst": Kind(burst, shop),
    "surge": Kind(surge, shop),
    "diurnal": Kind(diurnal, shop),
    "heavy": Kind(steady, heavy),
    "promotion": Kind(promotion, shop),
    "sessions": Kind(steady, shop, conversations=True),
    "spread": Kind(steady, spread),
}


def make_trace(name: str, *, load: float, seconds: float, seed: int, least: LeastWork) -> Trace:
    """Return a trace of `KINDS`: the same for the same arguments."""
    promise = least.costs.promise
    per_s = load * capacity_per_s(KINDS[name].mix(promise), least)
    return msgspec.structs.replace(traffic(name, per_s=per_s, seconds=seconds, seed=seed, promise=promise), load=load)


def traffic(name: str, *, per_s: float, seconds: float, seed: int, promise: Promise) -> Trace:
    """Return a trace of `KINDS` in which 1.0 of capacity is `per_s` requests per second."""
    kind, span_ms = KINDS[name], seconds * 1_000
    draw, pattern = kind.mix(promise), kind.pattern(span_ms)
    random = Random(f"{name}/{seed}")  # noqa: S311 - a load, not a secret
    return Trace(
        name=name,
        load=None,
        seed=seed,
        requests=held(
            _requests(kind, pattern, draw, random, per_s / 1_000, span_ms),
            Random(f"held/{name}/{seed}"),  # noqa: S311 - a load, not a secret
        ),
        surges=pattern.surges,
    )


def _requests(
    kind: Kind, pattern: Pattern, draw: Draw, random: Random, per_ms: float, span_ms: float
) -> Iterator[Request]:
    if not kind.conversations:
        yield from (draw(random, t) for t in _arrivals(random, pattern, per_ms, span_ms))
        return
    for t, session in conversations(random, per_ms, span_ms):
        yield msgspec.structs.replace(draw(random, t), session=session)


def capacity_per_s(draw: Draw, least: LeastWork) -> float:
    """Return the requests per second that the machine can serve at best, from a sample that does not depend on the
    seed."""
    random = Random("capacity")  # noqa: S311 - a load, not a secret
    return 1_000 * _SAMPLE / math.fsum(least.ms(draw(random, 0.0)) for _ in range(_SAMPLE))


def _arrivals(random: Random, pattern: Pattern, per_ms: float, span_ms: float) -> Iterator[float]:
    """Yield a Poisson process of varying rate, by thinning one at the peak rate (Lewis and Shedler, 1979)."""
    t = 0.0
    while (t := t + random.expovariate(per_ms * pattern.peak)) < span_ms:
        if pattern.peak * random.random() < pattern.rate(t):
            yield t
