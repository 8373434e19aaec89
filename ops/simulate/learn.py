"""Training the learned window in the simulator: `replyline simulate --train FILE`.

Each trace is run twice, with the bandit choosing and with no window. What a choice is worth is the difference that it
made, on average, to the requests that came until the next choice, or for a second: with the same arrivals in both runs
most of the chance cancels.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from statistics import fmean
from typing import Final

import msgspec
from msgspec import Struct

from ops.simulate.experiment import OURS, Experiment
from ops.simulate.simulator import Ending, Outcome
from ops.simulate.windows import Choice
from ops.traces.costs import CPU, GPU, EngineCosts
from ops.traces.drawn import make_trace
from ops.traces.trace import Trace
from workers.schedule.bandit import SHARES, Bandit, BanditTable, cell_of
from workers.schedule.window import Opening

_CURIOSITY: Final = 0.05
_HORIZON_MS: Final = 1_000.0


class Machine(Struct, frozen=True, kw_only=True):
    """What is simulated, for how long: a fast machine has as many requests in a shorter time."""

    costs: EngineCosts
    slots: int
    seconds: float


class Course(Struct, frozen=True, kw_only=True):
    """Traces of each kind, load and seed."""

    kinds: tuple[str, ...]
    loads: tuple[float, ...]
    seeds: tuple[int, ...]

    @property
    def num_traces(self) -> int:
        return len(self.kinds) * len(self.loads) * len(self.seeds)

    def traces(self, experiment: Experiment) -> Iterator[Trace]:
        for kind in self.kinds:
            for load in self.loads:
                for seed in self.seeds:
                    yield make_trace(kind, load=load, seconds=experiment.seconds, seed=seed, least=experiment.least)


MACHINES: Final = (Machine(costs=CPU, slots=16, seconds=120), Machine(costs=GPU, slots=64, seconds=30))
TRAINING: Final = Course(kinds=("poisson", "burst"), loads=(0.25, 0.5, 0.8, 1.0, 1.5), seeds=(101, 102, 103, 104))


class Explorer:
    """A rule that does as the bandit chooses, and notes what it chose: when, in which cell, which action."""

    def __init__(self, bandit: Bandit) -> None:
        self._bandit = bandit
        self.choices: list[tuple[float, str, int]] = []

    def __call__(self, opening: Opening) -> float:
        cell = cell_of(opening)
        action = self._bandit.choose(cell)
        self.choices.append((opening.opened_unix_ms, cell, action))
        return SHARES[action]


def experiment_on(machine: Machine, experiment: Experiment) -> Experiment:
    return msgspec.structs.replace(
        experiment, costs=machine.costs, slots=machine.slots, seconds=machine.seconds, windows=()
    )


def train(
    experiment: Experiment, tell: Callable[[], None], *, machines: Sequence[Machine] = MACHINES, on: Course = TRAINING
) -> BanditTable:
    """Every machine and trace once, in turn; `tell` hears of each trace. The same arguments give the same table."""
    bandit = Bandit(_CURIOSITY)
    for machine in machines:
        own = experiment_on(machine, experiment)
        for trace in on.traces(own):
            _study(bandit, own, trace)
            tell()
    names = ", ".join(machine.costs.name for machine in machines)
    return bandit.table(f"{', '.join(on.kinds)} at {min(on.loads):g} to {max(on.loads):g}, on {names}")


def worth(ending: Ending) -> float:
    """An answer in time is worth 1; its first token at the soft deadline costs as much, at once nothing."""
    request = ending.request
    in_time = float(ending.outcome is Outcome.IN_DEADLINE)
    if ending.first_token_ms is None:
        return in_time - 1.0
    return in_time - min(1.0, (ending.first_token_ms - request.arrival_ms) / request.first_token_ms)


def _study(bandit: Bandit, experiment: Experiment, trace: Trace) -> None:
    """Choose on a trace, then learn what came of it."""
    explorer = Explorer(bandit)
    tried = experiment.simulator(trace, OURS, Choice(name="tried", rule=explorer)).run().endings
    without = experiment.simulator(trace, OURS, Choice.fixed(0.0)).run().endings
    gains = [worth(one) - worth(other) for one, other in zip(tried, without, strict=True)]
    arrivals = [request.arrival_ms for request in trace.requests]
    ends = [opened for opened, _, _ in explorer.choices[1:]] + [float("inf")]
    for (opened, cell, action), end in zip(explorer.choices, ends, strict=True):
        first, last = (bisect_left(arrivals, at) for at in (opened, min(end, opened + _HORIZON_MS)))
        bandit.learn(cell, action, fmean(gains[first:last]) if first < last else 0.0)
