"""Replay recorded series under each scaler and compare the results. Pure, except for the curve's folder."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from msgspec import Struct

from ops.lab.fleet.contest import BARS, ENTRIES, OURS, SCALERS, Arena, bar
from ops.lab.fleet.curve import Curve
from ops.lab.fleet.fast import FastSimulator
from ops.lab.fleet.load import Load, scaled
from ops.lab.fleet.pool import Pool, taken_back
from ops.lab.fleet.simulator import FleetSimulator, Played
from ops.lab.fleet.watch import MINUTE_MS, Watch
from ops.scaling.autoscale.scaler import Scaler
from ops.scaling.forecast.models import make
from ops.traces.recorded import Series
from ops.virtual_worker.experiment import Experiment

SHORT_TICK_S: Final = 5.0
LONG_TICK_S: Final = 15.0
_LONG_S: Final = 86_400.0
_HOUR_MS: Final = 3_600_000.0
_FIRST_MS: Final = 300_000.0

Point = tuple[float, float]


class Row(Struct, frozen=True, kw_only=True):
    """A scaler's result on a trace.

    Attributes:
        trace: the trace's name.
        cold_start_s: how long a worker takes to start.
        scaler: the scaler's name.
        setting: the value of its knob.
        tuned: the value is the cheapest of a grid that keeps the goal; if no value keeps it, the one that answers most.
        exact: each request was simulated.
        answered: the share that the model answered in time.
        worker_hours: the cost.
        of_static: its worker-hours divided by those of the static fleet.
        of_clairvoyant: its worker-hours divided by those of the scaler that knows the future.
        answers_of_clairvoyant: its answers in time divided by those of the scaler that knows the future.
        taken_back: growths followed by a shrink, per hour; a trace of less than an hour counts as one hour.
        saved: the share of its worker-hours that ours would save at the same `answered`; None if ours was not tried
            that far.
    """

    trace: str
    cold_start_s: float
    scaler: str
    setting: str = ""
    tuned: bool = False
    exact: bool = False
    answered: float
    worker_hours: float
    of_static: float
    of_clairvoyant: float
    answers_of_clairvoyant: float
    taken_back: float
    saved: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A row, and its run over time for a plot."""

    row: Row
    load: Load
    played: Played


@dataclass(frozen=True, slots=True)
class _Scoring:
    """Compares each run on a trace with the bars' runs, and with our scaler's worker-hours at the same share of
    answers."""

    trace: str
    cold_start_s: float
    exact: bool
    load: Load
    bars: Mapping[str, Played]
    frontier: Sequence[Point]

    def told(self, played: Played, scaler: str, setting: str = "", *, tuned: bool = False) -> Told:
        hours, clairvoyant = played.worker_hours, self.bars["clairvoyant"]
        of_ours = _at(self.frontier, played.attainment) if scaler not in {*BARS, OURS} else None
        row = Row(
            trace=self.trace,
            cold_start_s=self.cold_start_s,
            scaler=scaler,
            setting=setting,
            tuned=tuned,
            exact=self.exact,
            answered=round(played.attainment, 4),
            worker_hours=round(hours, 2),
            of_static=round(hours / self.bars["static"].worker_hours, 4),
            of_clairvoyant=round(hours / clairvoyant.worker_hours, 4),
            answers_of_clairvoyant=round(played.attainment / clairvoyant.attainment, 4),
            taken_back=round(len(taken_back(played.pool.changes)) / max(self.load.span_ms / _HOUR_MS, 1.0), 2),
            saved=None if of_ours is None else round(1 - of_ours / hours, 4),
        )
        return Told(row=row, load=self.load, played=played)


@dataclass(slots=True, kw_only=True)
class Replay:
    """`rows` replays a series under the scalers of these names, with the curve or, if `exact`, request by request."""

    experiment: Experiment
    curve: Curve
    goal: float
    workers: int
    forecast: str | None
    exact: bool = False
    names: Sequence[str] = SCALERS
    hours: float | None = None
    tell: Callable[[int], None] = lambda _: None
    _num: int = field(default=0, init=False)

    def load(self, series: Series) -> Load:
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
        """Yield the bars' rows, then ours, then each rival's with its default and tuned."""
        load = self.load(series)
        arena = Arena(
            load=load,
            curve=self.curve,
            costs=self.experiment.costs,
            goal=self.goal,
            workers=self.workers,
            cold_start_ms=cold_start_s * 1_000,
        )
        bars = {name: self.play(arena, bar(name, arena)) for name in BARS}
        frontier = self._frontier(arena, OURS) if len(self.names) > len(BARS) else []
        scoring = _Scoring(series.name, cold_start_s, self.exact, load, bars, frontier)
        for name in self.names:
            if name in BARS:
                yield scoring.told(bars[name], name)
                continue
            entry = ENTRIES[name]
            default = self.goal if name == OURS else entry.default
            yield scoring.told(self.play(arena, entry.make(arena, default)), name, f"{entry.knob} {default:g}")
            if name != OURS and not self.exact:
                setting, played = self._tuned(arena, name)
                yield scoring.told(played, name, f"{entry.knob} {setting:g}", tuned=True)

    def play(self, arena: Arena, scaler: Scaler) -> Played:
        """Simulate a load once. Every fleet but a fixed one begins with the size that its first minutes need."""
        cold_ms = arena.cold_start_ms
        watch = Watch(
            work_s=1 / self.curve.per_s,
            forecaster=make(self.forecast) if self.forecast and scaler.name == OURS else None,
            steps=max(1, round(cold_ms / MINUTE_MS)),
        )
        pool = Pool.warm(self.workers if scaler.name == "static" else self._first_size(arena.load), cold_ms)
        self._num += 1
        self.tell(self._num)
        if self.exact:
            return FleetSimulator(
                load=arena.load, scaler=scaler, pool=pool, watch=watch, experiment=self.experiment
            ).run()
        return FastSimulator(
            load=arena.load, scaler=scaler, pool=pool, watch=watch, curve=self.curve, seed=self.experiment.seed
        ).run()

    def _first_size(self, load: Load) -> int:
        """Return the number of workers that the first minutes need."""
        first = load.per_s[: max(1, round(_FIRST_MS / load.tick_ms))]
        return max(1, math.ceil(float(first.mean()) / self.curve.per_s / self.curve.carries(self.goal)))

    def _tuned(self, arena: Arena, name: str) -> tuple[float, Played]:
        entry = ENTRIES[name]
        tried = [(setting, self.play(arena, entry.make(arena, setting))) for setting in (entry.default, *entry.grid)]
        kept = [each for each in tried if each[1].attainment >= self.goal]
        if kept:
            return min(kept, key=lambda each: each[1].worker_hours)
        return max(tried, key=lambda each: each[1].attainment)

    def _frontier(self, arena: Arena, name: str) -> list[Point]:
        """Return a scaler's worker-hours and share of answers for each value of its grid."""
        if self.exact:
            return []
        entry = ENTRIES[name]
        played = [self.play(arena, entry.make(arena, setting)) for setting in sorted({self.goal, *entry.grid})]
        return sorted((each.attainment, each.worker_hours) for each in played)


def _at(frontier: Sequence[Point], answered: float) -> float | None:
    if not frontier or not frontier[0][0] <= answered <= frontier[-1][0]:
        return None
    return float(np.interp(answered, [share for share, _ in frontier], [hours for _, hours in frontier]))
