"""Replay recorded series under each scaler and compare the results. Pure, except for the curve's folder."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct

from ops.lab.fleet.contest import BARS, BELIEFS, ENTRIES, OURS, SCALERS, Arena, bar, ours
from ops.lab.fleet.curve import Curve
from ops.lab.fleet.load import DemandTrace, scaled
from ops.lab.fleet.pool import Pool, num_turns
from ops.lab.fleet.simulator import FleetSimulator, Played
from ops.lab.fleet.watch import Watch
from ops.scaling.autoscale.expectation import Expectation
from ops.scaling.autoscale.scaler import Scaler
from ops.scaling.forecast.calendar import Calendar
from ops.scaling.forecast.demand_forecast import DemandForecast
from ops.traces.recorded import Series
from ops.virtual_worker.experiment import Experiment

SHORT_TICK_S: Final = 5.0
LONG_TICK_S: Final = 15.0
_LONG_S: Final = 86_400.0
_HOUR_MS: Final = 3_600_000.0
_FIRST_MS: Final = 300_000.0

Point = tuple[float, float]


class ReplayRow(Struct, frozen=True, kw_only=True):
    """A scaler's result on a trace.

    Attributes:
        trace: the trace's name.
        cold_start_s: how long a worker takes to start.
        scaler: the scaler's name.
        setting: the value of its knob.
        tuned: the value is the cheapest of a grid that keeps the goal; if no value keeps it, the one that answers most.
        answered: the share that the model answered in time.
        worker_hours: the cost.
        of_static: its worker-hours divided by those of the static fleet.
        of_clairvoyant: its worker-hours divided by those of the scaler that knows the future.
        turns: changes of direction, per hour; a trace of less than an hour counts as one hour.
        equal: the cost, as `of_clairvoyant`, at which it answers as large a share as ours by the setting for that; None
            if no setting of its grid does.
    """

    trace: str
    cold_start_s: float
    scaler: str
    setting: str = ""
    tuned: bool = False
    answered: float
    worker_hours: float
    of_static: float
    of_clairvoyant: float
    turns: float
    equal: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A row, and its run over time for a plot."""

    row: ReplayRow
    load: DemandTrace
    played: Played


@dataclass(frozen=True, slots=True)
class _Scoring:
    """Compares each run on a trace with the bars' runs."""

    trace: str
    cold_start_s: float
    load: DemandTrace
    bars: Mapping[str, Played]

    def told(
        self, played: Played, scaler: str, setting: str = "", *, tuned: bool = False, equal_hours: float | None = None
    ) -> Told:
        hours, clairvoyant = played.worker_hours, self.bars["clairvoyant"].worker_hours
        row = ReplayRow(
            trace=self.trace,
            cold_start_s=self.cold_start_s,
            scaler=scaler,
            setting=setting,
            tuned=tuned,
            answered=round(played.attainment, 4),
            worker_hours=round(hours, 2),
            of_static=round(hours / self.bars["static"].worker_hours, 4),
            of_clairvoyant=round(hours / clairvoyant, 4),
            turns=round(num_turns(played.pool.changes) / max(self.load.span_ms / _HOUR_MS, 1.0), 2),
            equal=None if equal_hours is None else round(equal_hours / clairvoyant, 4),
        )
        return Told(row=row, load=self.load, played=played)


@dataclass(slots=True, kw_only=True)
class Replay:
    """`rows` replays a series under the scalers of these names."""

    experiment: Experiment
    curve: Curve
    goal: float
    workers: int
    names: Sequence[str] = SCALERS
    beliefs: Sequence[float] = BELIEFS
    hours: float | None = None
    tell: Callable[[int], None] = lambda _: None
    _num: int = field(default=0, init=False)

    def load(self, series: Series) -> DemandTrace:
        """Return the series as a load whose busiest minute is the workers' capacity. With `hours`, only the hours
        around that minute are kept."""
        long = min(series.bin_s * len(series.values), (self.hours or math.inf) * 3_600) > _LONG_S
        load = scaled(
            series.name,
            series.values,
            series.bin_s,
            peak_per_s=self.workers * self.curve.carries(self.goal) * self.curve.per_s,
            tick_s=LONG_TICK_S if long else SHORT_TICK_S,
            seed=self.experiment.seed,
        )
        if self.hours is None or load.span_ms <= self.hours * _HOUR_MS:
            return load
        half = self.hours * _HOUR_MS / 2
        busiest = float(np.argmax(load.per_s)) * load.tick_ms
        return load.part(min(max(0.0, busiest - half), load.span_ms - 2 * half), 2 * half)

    def rows(self, series: Series, cold_start_s: float) -> Iterator[Told]:
        """Yield the bars' rows, then ours by each belief, then each rival's with its default and tuned."""
        load = self.load(series)
        arena = Arena(
            load=load,
            curve=self.curve,
            costs=self.experiment.costs,
            slots=self.experiment.slots,
            goal=self.goal,
            workers=self.workers,
            cold_start_ms=cold_start_s * 1_000,
        )
        bars = {name: self.play(arena, bar(name, arena)) for name in BARS}
        scoring = _Scoring(series.name, cold_start_s, load, bars)
        for name in self.names:
            if name in BARS:
                yield scoring.told(bars[name], name)
        reference = self.play(arena, ours(arena))
        if OURS in self.names:
            for belief in self.beliefs:
                played = reference if belief == 1.0 else self.play(arena, ours(arena, belief=belief))
                yield scoring.told(played, OURS, f"belief x{belief:g}")
        for name in self.names:
            if name in ENTRIES:
                entry, tried = ENTRIES[name], self._tried(arena, name)
                best = self._best(tried)
                yield scoring.told(tried[entry.default], name, f"{entry.knob} {entry.default:g}")
                equal = cost_at(tried.values(), reference.attainment)
                yield scoring.told(tried[best], name, f"{entry.knob} {best:g}", tuned=True, equal_hours=equal)

    def play(self, arena: Arena, scaler: Scaler) -> Played:
        """Simulate a load once. Every fleet but a fixed one begins with the size that its first minutes need."""
        cold_ms = arena.cold_start_ms
        watch = Watch(
            work_ms=1_000 / self.curve.per_s,
            expectation=Expectation(DemandForecast(), Calendar()) if scaler.name == OURS else None,
            cold_start_ms=cold_ms,
        )
        pool = Pool.warm(self.workers if scaler.name == "static" else self._first_size(arena.load), cold_ms)
        self._num += 1
        self.tell(self._num)
        return FleetSimulator(
            load=arena.load, scaler=scaler, pool=pool, watch=watch, curve=self.curve, seed=self.experiment.seed
        ).run()

    def _first_size(self, load: DemandTrace) -> int:
        """Return the number of workers that the first minutes need."""
        first = load.per_s[: max(1, round(_FIRST_MS / load.tick_ms))]
        return max(1, math.ceil(float(first.mean()) / self.curve.per_s / self.curve.carries(self.goal)))

    def _tried(self, arena: Arena, name: str) -> dict[float, Played]:
        entry = ENTRIES[name]
        return {value: self.play(arena, entry.make(arena, value)) for value in sorted({entry.default, *entry.grid})}

    def _best(self, tried: Mapping[float, Played]) -> float:
        """Return the cheapest setting that keeps the goal; if none does, the one that answers most."""
        kept = [value for value, played in tried.items() if played.attainment >= self.goal]
        if kept:
            return min(kept, key=lambda value: tried[value].worker_hours)
        return max(tried, key=lambda value: tried[value].attainment)


def cost_at(runs: Iterable[Played], answered: float) -> float | None:
    """Return the worker-hours at which a scaler answers this share, between those of its runs that no other run beats
    in both; None if they do not reach it, or all answer more."""
    found: list[Point] = []
    for run in sorted(runs, key=lambda run: (-run.attainment, run.worker_hours)):
        if not found or run.worker_hours < found[-1][1]:
            found.append((run.attainment, run.worker_hours))
    shares, hours = zip(*reversed(found), strict=True)
    if not shares[0] <= answered <= shares[-1]:
        return None
    return float(np.interp(answered, shares, hours))
