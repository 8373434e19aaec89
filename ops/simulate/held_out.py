"""Windows on traces that none of them was trained on: what `docs/window.md` reports."""

import math
from collections.abc import Callable, Sequence
from statistics import fmean, stdev
from typing import Final

from msgspec import Struct

from ops.measure.quantiles import percentile
from ops.measure.runner import Cell, markdown
from ops.simulate.experiment import OURS, Experiment
from ops.simulate.learn import MACHINES, Course, Machine, experiment_on, worth
from ops.simulate.simulator import Outcome, Run
from ops.simulate.windows import Choice
from workers.schedule.bandit import BanditTable, learned
from workers.schedule.window import adaptive

HELD_OUT: Final = Course(
    kinds=("poisson", "bimodal", "surge", "diurnal", "heavy"), loads=(0.5, 1.0, 1.5), seeds=(1, 2, 3)
)
FIXED: Final = (0.0, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0)
"""The first of them is what the others are compared with: no window."""


class Trial(Struct, frozen=True, kw_only=True):
    """One window on one machine, all held-out traces together. `gain` is the mean over the traces of the mean worth of
    a request (`learn.worth`), less that with no window; `error` is its standard error."""

    machine: str
    window: str
    model_in_deadline: int
    busy_ms_per_answer: float
    ttft_p50_ms: float
    ttft_p99_ms: float
    gain: float
    error: float


def choices(table: BanditTable) -> tuple[Choice, ...]:
    """What is compared, no window first."""
    return (
        *(Choice.fixed(window_ms) for window_ms in FIXED),
        Choice.fixed(10.0, 50.0),
        Choice(name="adaptive", rule=adaptive),
        Choice(name="learned", rule=learned(table)),
    )


def compare(
    experiment: Experiment,
    table: BanditTable,
    tell: Callable[[], None],
    *,
    machines: Sequence[Machine] = MACHINES,
    on: Course = HELD_OUT,
) -> list[Trial]:
    """By machine, then window; `tell` hears of each trace."""
    trials: list[Trial] = []
    for machine in machines:
        own = experiment_on(machine, experiment)
        runs: list[list[Run]] = []
        for trace in on.traces(own):
            runs.append([own.simulator(trace, OURS, choice).run() for choice in choices(table)])
            tell()
        worths = [[_mean_worth(run) for run in of_trace] for of_trace in runs]
        for number, choice in enumerate(choices(table)):
            gains = [of_trace[number] - of_trace[0] for of_trace in worths]
            trials.append(_trial(machine.costs.name, choice.name, [of_trace[number] for of_trace in runs], gains))
    return trials


def verdict(trials: Sequence[Trial]) -> str:
    """A line for each machine: which fixed window was best, and whether the learned one beat it."""
    lines: list[str] = []
    for machine in dict.fromkeys(trial.machine for trial in trials):
        mine = {trial.window: trial for trial in trials if trial.machine == machine}
        best = max((mine[f"{window_ms:g}"] for window_ms in FIXED), key=lambda trial: trial.gain)
        ours = mine["learned"]
        sure = "" if best.gain > 2 * best.error else ", not clearly better than none"
        beats = "beats it" if ours.gain - best.gain > ours.error + best.error else "does not beat it"
        lines.append(f"{machine}: the best fixed window is {best.window} ms{sure}; the learned one {beats}.")
    return "\n".join(lines)


def trials_table(trials: Sequence[Trial]) -> str:
    header = (
        "costs", "window", "in deadline", "busy ms an answer", "TTFT p50 ms", "TTFT p99 ms", "gain ‰", "± ‰",
    )  # fmt: skip
    return markdown(header, [_line(trial) for trial in trials])


def _line(trial: Trial) -> tuple[Cell, ...]:
    return (
        trial.machine,
        trial.window,
        trial.model_in_deadline,
        trial.busy_ms_per_answer,
        trial.ttft_p50_ms,
        trial.ttft_p99_ms,
        f"{1_000 * trial.gain:+.2f}",
        f"{1_000 * trial.error:.2f}",
    )


def _mean_worth(run: Run) -> float:
    return fmean(worth(ending) for ending in run.endings) if run.endings else 0.0


def _trial(machine: str, window: str, runs: Sequence[Run], gains: Sequence[float]) -> Trial:
    endings = [ending for run in runs for ending in run.endings]
    ttfts = sorted(one.first_token_ms - one.request.arrival_ms for one in endings if one.first_token_ms is not None)
    good = sum(one.outcome is Outcome.IN_DEADLINE for one in endings)
    return Trial(
        machine=machine,
        window=window,
        model_in_deadline=good,
        busy_ms_per_answer=sum(run.busy_ms for run in runs) / max(good, 1),
        ttft_p50_ms=percentile(ttfts, 0.50),
        ttft_p99_ms=percentile(ttfts, 0.99),
        gain=fmean(gains),
        error=stdev(gains) / math.sqrt(len(gains)) if len(gains) > 1 else 0.0,
    )
