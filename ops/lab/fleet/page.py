"""The rows of a replay as a table, and as a page with a plot of each policy over time. Pure."""

from collections.abc import Sequence
from itertools import groupby
from typing import Final

import numpy as np

from ops.lab.fleet.curve import Curve
from ops.lab.fleet.load import Floats
from ops.lab.fleet.replay import ReplayRow, Told
from ops.measure.plot import Line, Plot
from ops.measure.report import Part, report
from ops.measure.runner import Cell, markdown
from ops.traces.recorded import Series

_TITLES: Final = (
    "trace", "cold start", "scaler", "setting", "in time", "worker-hours", "of static", "of clairvoyant",
    "turns an hour", "at ours' answers",
)  # fmt: skip
_TERMS: Final = (
    "In time: the share of all requests that the model answered whole within both deadlines. Tuned: the cheapest "
    "setting of a grid that keeps the goal, or the one that answers most. Turns: changes of direction. At ours' "
    "answers: of clairvoyant, where it is tuned to answer the same share in time as ours does."
)
_BINS: Final = 240
_HOUR_MS: Final = 3_600_000.0


def table(rows: Sequence[ReplayRow]) -> str:
    """Return the rows for a terminal."""
    return markdown(_TITLES, [_cells(row) for row in rows])


def page(told: Sequence[Told], series: Sequence[Series], curve: Curve, command: str) -> str:
    """Return the whole file: a section for each trace and cold start."""
    parts = []
    for (trace, cold_start_s), group in groupby(told, key=lambda one: (one.row.trace, one.row.cold_start_s)):
        runs = list(group)
        title = f"{trace}, cold start {cold_start_s:g} s"
        parts.append(
            Part(title=title, plots=_plots(runs), titles=_TITLES[2:], rows=[_cells(one.row)[2:] for one in runs])
        )
    shares = Line("in time", list(zip(curve.loads, curve.in_time, strict=True)))
    busy = Line("busy", list(zip(curve.loads, curve.busy, strict=True)), colour=1)
    worker = Plot(title="One worker", x="machine seconds asked a second", y="share", lines=(shares, busy))
    parts.append(Part(title="What a worker answers", plots=(worker,)))
    made = {"command": command} | {each.name: f"{each.title}; {each.licence}, {each.source}" for each in series}
    parts.append(Part(title="How this was made", text=_TERMS, pairs=made))
    return report("A fleet's size", "Recorded traffic on a simulated fleet, under each scaler.", parts)


def _plots(runs: Sequence[Told]) -> list[Plot]:
    shown = [one for one in runs if not one.row.tuned]
    load, played = shown[0].load, shown[0].played
    asked = Line("", _course(np.array(played.asked) / (load.tick_ms / 1_000), load.tick_ms))

    def lines(values: Sequence[Floats]) -> list[Line]:
        return [
            Line(one.row.scaler, _course(value, load.tick_ms), colour=colour % 6)
            for colour, (one, value) in enumerate(zip(shown, values, strict=True))
        ]

    kept = [np.array(one.played.kept, dtype=np.float64) for one in shown]
    in_time = [_shares(one) for one in shown]
    return [
        Plot(title="Load", x="hours", y="requests a second", lines=(asked,)),
        Plot(title="Fleet", x="hours", y="workers", lines=lines(kept)),
        Plot(title="Answered in time", x="hours", y="share", lines=lines(in_time), from_zero=False),
    ]


def _shares(one: Told) -> Floats:
    """Return the share of answers in time around each tick: a moving average as wide as one point of the plot."""
    width = max(1, len(one.played.asked) // _BINS)
    asked, in_time = (np.convolve(values, np.ones(width), "same") for values in (one.played.asked, one.played.in_time))
    shares: Floats = np.where(asked > 0, in_time / np.maximum(asked, 1e-9), 1.0)
    return shares


def _course(values: Floats, tick_ms: float) -> list[tuple[float, float]]:
    step = max(1, values.size // _BINS)
    means = [(start, float(values[start : start + step].mean())) for start in range(0, values.size, step)]
    return [(start * tick_ms / _HOUR_MS, mean) for start, mean in means]


def _cells(row: ReplayRow) -> tuple[Cell, ...]:
    return (
        row.trace,
        f"{row.cold_start_s:g} s",
        f"{row.scaler}, tuned" if row.tuned else row.scaler,
        row.setting,
        f"{row.answered:.2%}",
        f"{row.worker_hours:,.1f}",
        f"{row.of_static:.1%}",
        f"{row.of_clairvoyant:.1%}",
        f"{row.turns:.2f}",
        "–" if row.equal is None else f"{row.equal:.1%}",
    )
