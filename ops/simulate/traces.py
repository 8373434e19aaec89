"""The traces: when requests arrive, in multiples of what the machine can do. Pure, by a seed.

The machine's capacity for a mix is one request for each mean least machine time (`LeastWork`). `load` 1.0 offers just
that in `poisson`, `bimodal` and `heavy`, and on average in `diurnal`; `burst` and `surge` are multiplied by it as a
whole, and are at 1.0 what their line says.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from random import Random
from typing import Final

from ops.simulate.least_work import LeastWork
from ops.simulate.mixes import PROFILES, Draw, Promise, bimodal, heavy, shop
from ops.simulate.trace import Trace

_SAMPLE: Final = 8_192
_MINUTE_MS: Final = 60_000.0
_BURST_START_MS: Final = 20_000.0
_BURST_MS: Final = 10_000.0
_SURGE_MOST_MS: Final = 3_600_000.0

Rate = Callable[[float], float]
Spans = tuple[tuple[float, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pattern:
    """Arrivals over time: `rate(t)` and at most `peak`, in multiples of the load; `surges` within `seconds`."""

    rate: Rate
    peak: float
    surges: Spans = ()


def steady(_span_ms: float) -> Pattern:
    return Pattern(rate=lambda _t: 1.0, peak=1.0)


def burst(span_ms: float) -> Pattern:
    """0.6 of capacity, and five times that for 10 s of each minute, from its 20th second on."""
    starts = [_BURST_START_MS + _MINUTE_MS * minute for minute in range(math.ceil(span_ms / _MINUTE_MS))]
    surges = tuple((start, min(start + _BURST_MS, span_ms)) for start in starts if start < span_ms)

    def rate(t: float) -> float:
        return 3.0 if _BURST_START_MS <= t % _MINUTE_MS < _BURST_START_MS + _BURST_MS else 0.6

    return Pattern(rate=rate, peak=3.0, surges=surges)


def surge(span_ms: float) -> Pattern:
    """Half of capacity, and nine times that (+800 %) for an hour, or the middle three fifths of a shorter trace."""
    start = span_ms / 5
    end = start + min(_SURGE_MOST_MS, span_ms * 3 / 5)
    return Pattern(rate=lambda t: 4.5 if start <= t < end else 0.5, peak=4.5, surges=((start, end),))


def diurnal(span_ms: float) -> Pattern:
    """A day in the trace's length: 0.2 of the load at night, 1.8 at noon."""
    return Pattern(rate=lambda t: 1.0 - 0.8 * math.cos(2 * math.pi * t / span_ms), peak=1.8)


@dataclass(frozen=True, slots=True)
class Kind:
    """How a trace is made: its arrivals and its requests, given the product's deadlines on this machine."""

    pattern: Callable[[float], Pattern]
    mix: Callable[[Promise], Draw]


KINDS: Final = {
    "poisson": Kind(steady, shop),
    "bimodal": Kind(steady, lambda _promise: bimodal()),
    "burst": Kind(burst, shop),
    "surge": Kind(surge, shop),
    "diurnal": Kind(diurnal, shop),
    "heavy": Kind(steady, heavy),
}


def make_trace(name: str, *, load: float, seconds: float, seed: int, least: LeastWork) -> Trace:
    """A trace of `KINDS`: the same for the same arguments."""
    kind, span_ms = KINDS[name], seconds * 1_000
    draw = kind.mix(PROFILES[least.costs.profile])
    pattern = kind.pattern(span_ms)
    random = Random(f"{name}/{seed}")  # noqa: S311 - a load, not a secret
    per_ms = load * capacity_per_s(draw, least) / 1_000
    return Trace(
        name=name,
        load=load,
        seed=seed,
        requests=tuple(draw(random, t) for t in _arrivals(random, pattern, per_ms, span_ms)),
        surges=pattern.surges,
    )


def capacity_per_s(draw: Draw, least: LeastWork) -> float:
    """Requests a second that the machine can serve at the very best, by a sample that is the same for every seed."""
    random = Random("capacity")  # noqa: S311 - a load, not a secret
    return 1_000 * _SAMPLE / math.fsum(least.ms(draw(random, 0.0)) for _ in range(_SAMPLE))


def _arrivals(random: Random, pattern: Pattern, per_ms: float, span_ms: float) -> Iterator[float]:
    """A Poisson process of varying rate, by thinning one at the peak (Lewis and Shedler, 1979)."""
    t = 0.0
    while (t := t + random.expovariate(per_ms * pattern.peak)) < span_ms:
        if pattern.peak * random.random() < pattern.rate(t):
            yield t
