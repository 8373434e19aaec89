"""Requests that lose the model through a rollout of an equal version, in virtual time.

Both runs have the same requests, at a share of what the champion's workers can serve. With the rollout the canary and
its control have a worker each in addition, and the gateway's own code sends what these have no time for to the
champion.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from ops.lab.simulate.comparison import Comparison
from ops.traces.costs import EngineCosts
from ops.virtual_worker.simulator import Ending, SimulatedOutcome
from shared.versions.state import Rule, State
from shared.wire.lanes import CHAMPION, Lane

CHAMPIONS: Final = 3
SHARES: Final = (0.01, 0.1, 0.25, 0.5)
_Z95: Final = 1.959964


class Loss(Struct, frozen=True, kw_only=True):
    """The requests of one trace at a `share` of the rollout: how many lost the model, that is got the FAQ or an answer
    that was cut or late, without and with the rollout. `asked` are those that the rule gives to the canary and its
    control, `own` those of them that their own lane answered in time."""

    share: float
    seed: int
    requests: int
    without: int
    with_it: int
    asked: int
    own: int

    @property
    def more(self) -> int:
        return self.with_it - self.without

    @property
    def more_of_all(self) -> float:
        return self.more / self.requests


def losses(experiment: Comparison, trace: str, shares: Sequence[float], *, slower: float = 1.0) -> list[Loss]:
    """Return the loss at each share. `experiment.loads` has the one load, in multiples of all champions' capacity. A
    step of the canary takes `slower` times as long as the champion's."""
    [load], costs = experiment.loads, experiment.costs
    assert load is not None
    drawn = experiment.trace(trace, load * CHAMPIONS)
    champions: dict[Lane, list[EngineCosts]] = {CHAMPION: [costs] * CHAMPIONS}
    without = experiment.lanes_simulator(drawn, champions, State()).run()
    found = []
    for share in shares:
        rule = Rule(salt=f"rollout/{experiment.seed}", share=share, control=True)
        state = State(epoch=1, aliases={"canary": "new", CHAMPION: "old"}, rule=rule)
        lanes: dict[Lane, list[EngineCosts]] = {**champions, "canary": [costs.times(slower)], "control": [costs]}
        simulator = experiment.lanes_simulator(drawn, lanes, state)
        with_it = simulator.run()
        found.append(
            Loss(
                share=share,
                seed=experiment.seed,
                requests=len(drawn.requests),
                without=_lost(without.endings),
                with_it=_lost(with_it.endings),
                asked=simulator.asked_by_rule.total() - simulator.asked_by_rule[CHAMPION],
                own=simulator.by_lane.total() - simulator.by_lane[CHAMPION],
            )
        )
    return found


def trials(experiment: Comparison, trace: str, shares: Sequence[float], seeds: Sequence[int]) -> list[Loss]:
    """Return the losses of several seeds, by share."""
    found = [loss for seed in seeds for loss in losses(replace(experiment, seed=seed), trace, shares)]
    return sorted(found, key=lambda loss: loss.share)


def table(found: Sequence[Loss]) -> str:
    """Return the losses as text: a line for each share and seed, and the mean of each share's seeds."""
    lines = ["share  seed  requests  lost without   with  more  own lane in time, of all asked"]
    for share, of_share in groupby(found, key=lambda loss: loss.share):
        each = list(of_share)
        lines += [
            f"{loss.share:>5.0%}{loss.seed:>6}{loss.requests:>10}{loss.without:>14}{loss.with_it:>7}{loss.more:>+6}"
            f"  {loss.own} of {loss.asked}"
            for loss in each
        ]
        mean, low, high = (100 * bound for bound in interval([loss.more_of_all for loss in each]))
        lines.append(f"{share:>5.0%}  more lost: {mean:+.2f} % of the requests ({low:+.2f} to {high:+.2f})")
    return "\n".join(lines)


def interval(shares: Sequence[float]) -> tuple[float, float, float]:
    """Return the mean of one share a seed, and the bounds of its 95 % interval over the seeds."""
    mean = math.fsum(shares) / len(shares)
    spread = math.fsum((share - mean) ** 2 for share in shares) / max(1, len(shares) - 1)
    half = _Z95 * math.sqrt(spread / len(shares))
    return mean, mean - half, mean + half


def _lost(endings: Sequence[Ending]) -> int:
    return sum(ending.outcome is not SimulatedOutcome.IN_DEADLINE for ending in endings)
