"""Rollouts of a version that is slower than its champion, in virtual time: the gateway's and the workers' own code.

The canary, its control and the champion have one worker each. What the canary has no time for the champion answers, so
that these questions are missing in the tests. On the last step canary and control are asked everything.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from gateway.destination.destination import Destination
from ops.lab.rollout.capacity import interval
from ops.lab.simulate.comparison import Comparison
from ops.lab.simulate.ladder import LadderSimulator
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.policy import MOVES, Health, Kind, decide, first_state, next_state, standings
from ops.lifecycle.rollout.tally import Side
from ops.measure.runner import progress_bar
from ops.traces.costs import EngineCosts
from ops.virtual_worker.simulator import Ending, SimulatedOutcome
from shared.settings import Settings
from shared.versions.state import Move, State
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.reports import Observation
from shared.wire.topics import BUCKETS

PLAN: Final = Plan(version="canary", champion="champion", steps=(0.5,), min_s=20.0, epoch=1, salt="slow")
SLOWER: Final = (1.0, 1.1, 1.5, 3.0)
LOADS: Final = (0.3, 0.8)
_ONLY: Final[tuple[Bucket | None, ...]] = (None, "short", "long")
_DECIDED_EVERY_MS: Final = 1_000.0
_SLOTS: Final = 16
# Of a trace at all of the control's capacity: 50 long answers of each side take less than half of it.
_SECONDS_AT_CAPACITY: Final = 120.0


class SlowCanary(Struct, frozen=True, kw_only=True):
    """A canary whose steps take `slower` times as long, or that needs `slower` times the tokens in bucket `only`. At
    the last step canary and control are asked `load` of what the control can serve."""

    slower: float
    load: float
    only: Bucket | None = None

    @property
    def name(self) -> str:
        return f"x{self.slower:g}{f' in {self.only}' if self.only else ''} at {self.load:g}"


KINDS: Final = tuple(
    SlowCanary(slower=slower, load=load, only=only)
    for load in LOADS
    for slower in SLOWER
    for only in _ONLY
    if slower > 1 or only is None
)


class Rollouts(Struct, frozen=True, kw_only=True):
    """How the rollouts of one kind ended; `held` are those that the trace's end found undecided. `more` is how many
    more of the canary's questions than of the control's were not answered in time by their lane, as a share of all at
    the last step, with the bounds of its 95 % interval over the seeds; `most` is that of the bucket with the largest
    share. `wrong` are the promotions of a canary that loses more than the margin, by the whole interval."""

    name: str
    rollouts: int
    finished: int
    rolled_back: int
    held: int
    wrong: int
    more: float
    low: float
    high: float
    most: float


@dataclass(slots=True)
class _Seen:
    """The observations of ended requests that are not added yet, and each bucket's questions, asked and answered in
    time by their own lane."""

    waiting: list[Observation] = field(default_factory=list)
    asked: Counter[tuple[str, Bucket]] = field(default_factory=Counter)
    own: Counter[tuple[str, Bucket]] = field(default_factory=Counter)

    def ended(self, to: Destination, ending: Ending) -> None:
        """Take the end of a request, as `gateway/telemetry/observation.py` describes an answer."""
        asked = to.by_rule
        if asked.lane == CHAMPION:
            return
        in_time, is_own = ending.outcome is SimulatedOutcome.IN_DEADLINE, to.lane == asked.lane
        is_diverted = to.diverted_from is not None
        missed = to.given_up or (not in_time and not is_diverted)
        self.asked[asked.lane, asked.bucket] += 1
        self.own[asked.lane, asked.bucket] += is_own and in_time
        number = str(self.asked.total())
        first_ms = ending.first_token_ms
        self.waiting.append(
            Observation(
                response_id=number,
                conversation=number,
                lane=asked.lane,
                revision=asked.revision or "",
                answered_by="" if to.given_up or first_ms is None else to.revision or "",
                epoch=asked.epoch or 0,
                unix_ms=int(ending.released_ms),
                bucket=asked.bucket,
                asked_unix_ms=int(ending.request.arrival_ms),
                moved=False,
                missed=missed,
                censored=not (is_own or missed),
                ttft_ms=first_ms - ending.request.arrival_ms if is_own and first_ms is not None else None,
            )
        )

    def lost(self, side: Side, buckets: Sequence[Bucket]) -> float:
        """Return the share of a side's questions that its lane did not answer in time."""
        asked, own = (sum(of[side, bucket] for bucket in buckets) for of in (self.asked, self.own))
        return 1 - own / max(1, asked)


def simulator_of(experiment: Comparison, kind: SlowCanary, state: State) -> LadderSimulator:
    """Return the simulator of a rollout's traffic."""
    costs = experiment.costs
    slower = costs.times(kind.slower) if kind.only is None else costs
    lanes: dict[Lane, list[EngineCosts]] = {CHAMPION: [costs], "canary": [slower], "control": [costs]}
    simulator = experiment.lanes_simulator(experiment.trace("poisson", 2 * kind.load), lanes, state)
    if kind.only is not None:
        for worker in simulator.workers:
            worker.longer = {kind.only: kind.slower} if worker.lane == "canary" else {}
    return simulator


def run(experiment: Comparison, kind: SlowCanary, plan: Plan = PLAN) -> Kind:
    """Run one rollout until it ends or the trace does; return its last decision."""
    plan = _salted(plan, experiment)
    state = _begun(plan)
    moves = [Move(state=state, author="simulate", reason="", unix_ms=0)]
    evidence, at, seen = Evidence(plan), standings(plan, moves), _Seen()
    simulator = simulator_of(experiment, kind, state)
    simulator.ended = seen.ended
    decided_ms = 0.0
    last: Kind = "hold"
    while (now_ms := simulator.advance()) is not None:
        for each in seen.waiting:
            evidence.add(each)
        seen.waiting.clear()
        if now_ms - decided_ms < _DECIDED_EVERY_MS and not evidence.alarm:
            continue
        decided_ms = now_ms
        decision = decide(plan, evidence, state, at, Health(champions_loaded=True), now_ms)
        last = decision.kind
        if last in ("finish", "roll back", "end"):
            break
        if last in MOVES:
            state = simulator.state = next_state(plan, decision, state, state.epoch + 1)
            moves.append(Move(state=state, author="simulate", reason=decision.reason, unix_ms=int(now_ms)))
            at = standings(plan, moves)
    return last


def _salted(plan: Plan, experiment: Comparison) -> Plan:
    """Return the plan with the seed's own salt: one salt would give each side the same arrivals in every trace."""
    return replace(plan, salt=f"slow/{experiment.seed}")


def _begun(plan: Plan) -> State:
    return first_state(plan, State(aliases={CHAMPION: plan.champion}))


def loses_more(experiment: Comparison, kind: SlowCanary, plan: Plan = PLAN) -> list[float]:
    """Return how many more questions the canary loses at the last step than its control, as a share: of all, then of
    each bucket."""
    seen = _Seen()
    simulator = simulator_of(experiment, kind, _begun(_salted(plan, experiment)))
    simulator.ended = seen.ended
    simulator.run()
    return [seen.lost("canary", of) - seen.lost("control", of) for of in (BUCKETS, *((bucket,) for bucket in BUCKETS))]


def rollouts(kind: SlowCanary, costs: EngineCosts, settings: Settings, seeds: Sequence[int]) -> Rollouts:
    """Run a rollout of each seed, and measure the canary with each."""
    seconds = _SECONDS_AT_CAPACITY / kind.load
    experiment = Comparison(slots=_SLOTS, seconds=seconds, costs=costs, settings=settings)
    each = [replace(experiment, seed=seed) for seed in seeds]
    ends: Counter[Kind] = Counter(run(one, kind) for one in each)
    all_more, *of_buckets = zip(*(loses_more(one, kind) for one in each), strict=True)
    more, low, high = interval(all_more)
    finished, back = ends["finish"], ends["roll back"]
    return Rollouts(
        name=kind.name,
        rollouts=len(seeds),
        finished=finished,
        rolled_back=back,
        held=len(seeds) - finished - back,
        wrong=finished if low > PLAN.margin else 0,
        more=round(more, 4),
        low=round(low, 4),
        high=round(high, 4),
        most=round(max(interval(shares)[0] for shares in of_buckets), 4),
    )


def trials(costs: EngineCosts, settings: Settings, seeds: Sequence[int], console: Console) -> list[Rollouts]:
    """Return the rollouts of each kind."""
    found: list[Rollouts] = []
    with progress_bar(console, "kinds", len(KINDS)) as progress:
        for kind in KINDS:
            found.append(rollouts(kind, costs, settings, seeds))
            progress(len(found))
    return found


def table(found: Sequence[Rollouts]) -> str:
    """Return the rollouts as text."""
    lines = [f"{'':22}finished  rolled back  held   loses more: of all (95 %)    of a bucket   wrongly promoted"]
    lines += [
        f"{each.name:<22}{each.finished:>8}{each.rolled_back:>13}{each.held:>6}"
        f"{each.more:>13.1%} ({each.low:.1%} to {each.high:.1%}){each.most:>13.1%}{each.wrong:>10} of {each.rollouts}"
        for each in found
    ]
    return "\n".join(lines)
