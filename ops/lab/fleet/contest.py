"""The scalers of a replay by name: their defaults, and the values that are tried for each. Pure."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ops.lab.fleet.curve import Curve
from ops.lab.fleet.hpa import Behaviour
from ops.lab.fleet.load import DemandTrace, Floats, Ints
from ops.lab.fleet.rivals import (
    Clairvoyant,
    DynamoReactive,
    HpaOnBusy,
    KedaOnLag,
    KnativeOnConcurrency,
    SaturationOfLlmd,
    Static,
)
from ops.lab.fleet.simulator import PARTITIONS, in_time_of
from ops.scaling.autoscale.policy import DemandScaler, Sizing
from ops.scaling.autoscale.scaler import Scaler
from ops.traces.costs import EngineCosts

OURS: Final = "replyline"
BELIEFS: Final = (0.75, 1.0, 1.25)
"""What ours believes that a worker carries, of what it does."""
STANDBY: Final = "standby"
"""Our scaler with standby workers; it runs only if it is named."""
BARS: Final = ("static", "clairvoyant")
"""The fleets by which scalers are measured; they have no setting to try."""
_FIRST_TOKEN_MS: Final = 500.0  # Dynamo's defaults; the time between two tokens is the knob
_PROMPT_TOKENS: Final = 114.0  # of the mix that is asked, in the mean
_CONTEXT_TOKENS: Final = 150.0
_SIZES: Final = range(1, PARTITIONS + 1)
_HALVINGS: Final = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Arena:
    """The parts from which the scalers of one replay are made."""

    load: DemandTrace
    curve: Curve
    costs: EngineCosts
    slots: int
    goal: float
    workers: int
    cold_start_ms: float

    def cheapest(self) -> list[int]:
        """Return the size, at each tick, of the cheapest fleet that keeps the goal over the whole load.

        A worker is added if it answers at least a threshold more in time. The gain falls with each further worker, so
        the highest threshold that keeps the goal gives the cheapest fleet.
        """
        per_s = self.load.per_s
        shares = np.array([in_time_of(self.curve, per_s, np.full(per_s.size, size)) for size in _SIZES])
        gained = np.diff(shares, axis=0) * per_s
        low, high = -20.0, math.log(max(float(gained.max()), 1e-6))
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            if self._answered(shares, _sizes(gained, math.exp(middle))) >= self.goal:
                low = middle
            else:
                high = middle
        found: list[int] = _sizes(gained, math.exp(low)).tolist()
        return found

    def _answered(self, shares: Floats, sizes: Ints) -> float:
        """Return the share that a fleet answers in time if no worker is ended that is needed again within a cold
        start."""
        steps = round(self.cold_start_ms / self.load.tick_ms)
        kept = sliding_window_view(np.pad(sizes, (0, steps), mode="edge"), steps + 1).max(axis=1)
        serving = sliding_window_view(np.pad(kept, (steps, 0), mode="edge"), steps + 1).min(axis=1)
        per_s = self.load.per_s
        return float((per_s * shares[serving - 1, np.arange(per_s.size)]).sum() / per_s.sum())


def _sizes(gained: Floats, threshold: float) -> Ints:
    more: Ints = 1 + np.cumprod(gained >= threshold, axis=0, dtype=np.int64).sum(axis=0)
    return more


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """A scaler with its knob: `default` is the documented value, `grid` are the other values to try."""

    knob: str
    default: float
    grid: tuple[float, ...]
    make: Callable[[Arena, float], Scaler]


@dataclass(frozen=True, slots=True)
class _Laws:
    """The times of the simulated engine, for Dynamo's planner."""

    costs: EngineCosts

    def first_token_ms(self, running: float, waiting: float) -> float:
        """Return the time of the waiting prompts and its own. Each takes a prefill and a step of the running
        requests."""
        return (self.costs.prefill_ms(round(_PROMPT_TOKENS)) + self.token_ms(running)) * (1 + waiting)

    def token_ms(self, running: float) -> float:
        return self.costs.decode_ms(round(running), round(running * _CONTEXT_TOKENS)) + self.costs.step_overhead_ms


def _behaviour() -> Behaviour:
    return Behaviour(least=1, most=PARTITIONS)


def ours(arena: Arena, *, belief: float = 1.0, standby: int = 0) -> Scaler:
    """Return our scaler. `belief`: what it believes that a worker carries, of what it does."""
    curve = arena.curve
    sizing = Sizing(carries=curve.carries(arena.goal) * belief, attainment=arena.goal, most=PARTITIONS, standby=standby)
    return DemandScaler(sizing=sizing, in_time=lambda load: curve.at(load / belief))


def _reactive(arena: Arena, token_ms: float) -> Scaler:
    return DynamoReactive(
        latencies=_Laws(arena.costs), first_token_ms=_FIRST_TOKEN_MS, token_ms=token_ms, least=1, most=PARTITIONS
    )


def _steps(first: float, last: float) -> tuple[float, ...]:
    """Return 13 values in equal steps, both ends included."""
    return tuple(round(first + (last - first) * step / 12, 3) for step in range(13))


ENTRIES: Final[Mapping[str, Contestant]] = {
    STANDBY: Contestant(
        knob="standby workers",
        default=1.0,
        grid=(2.0, 3.0),
        make=lambda arena, standby: ours(arena, standby=round(standby)),
    ),
    "keda": Contestant(
        knob="lagThreshold",
        default=10.0,
        grid=_steps(8.0, 20.0),
        make=lambda _, lag: KedaOnLag(behaviour=_behaviour(), lag_threshold=lag),
    ),
    "hpa": Contestant(
        knob="utilisation",
        default=0.8,
        grid=_steps(0.72, 0.96),
        make=lambda _, busy: HpaOnBusy(behaviour=_behaviour(), target=busy),
    ),
    "knative": Contestant(
        knob="concurrency",
        default=11.2,  # 70 % of 16 slots
        grid=_steps(6.0, 12.0),
        make=lambda _, target: KnativeOnConcurrency(target=target, least=1, most=PARTITIONS),
    ),
    "llm-d": Contestant(
        knob="kvCacheThreshold",
        default=0.8,
        grid=_steps(0.7, 1.0),
        make=lambda arena, threshold: SaturationOfLlmd(behaviour=_behaviour(), slots=arena.slots, threshold=threshold),
    ),
    "dynamo": Contestant(knob="ITL in ms", default=50.0, grid=_steps(12.0, 24.0), make=_reactive),
}
SCALERS: Final = (*BARS, OURS, *(name for name in ENTRIES if name != STANDBY))
"""Who is compared unless names are given."""


def bar(name: str, arena: Arena) -> Scaler:
    """Return the scaler of this name in `BARS`."""
    if name == "static":
        return Static(workers=arena.workers)
    needed = arena.cheapest()
    tick_ms, last = arena.load.tick_ms, len(needed) - 1
    return Clairvoyant(
        needed=lambda at_ms: needed[min(int(at_ms // tick_ms), last)],
        cold_start_ms=arena.cold_start_ms,
        every_ms=tick_ms,
    )
