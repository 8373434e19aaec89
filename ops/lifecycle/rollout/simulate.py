"""Rollouts in virtual time: how many answers an alarm takes, and how often one is false. Pure but for its draws."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from rich.console import Console

from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.policy import MOVES, Health, Kind, decide, first_state, next_state, standings
from ops.measure.quantiles import percentile
from ops.measure.runner import progress_bar
from shared.versions.state import Move, State
from shared.wire.lanes import CHAMPION
from shared.wire.messages import Bucket, Observation

_BUCKETS: Final[dict[Bucket, float]] = {"short": 0.6, "medium": 0.3, "long": 0.1}
_MEDIAN_MS: Final = 300.0
_SPREAD: Final = 0.5
_RATED: Final = 0.1
_HALF: Final = 0.5
_LONGEST: Final = 20_000
_SOON_S: Final = 30.0
_BASES: Final = (0.01, 0.02, 0.03, 0.04, 0.05)
_BASE: Final = 0.02
_BAD: Final = (0.15, 0.2, 0.3, 0.5, 1.0)
PLAN: Final = Plan(version="canary", champion="champion", steps=(0.01, 0.1, 0.5), min_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """`rate` answers a second of the canary, and of the control. Of each side's a share `base` fails, as many miss
    their deadline, are unsure, or are rated down of those that are rated at all; of the canary's a share `bad` fails
    beside that. Every other answer begins a conversation."""

    rate: float = 2.0
    base: float
    bad: float = 0.0


@dataclass(slots=True)
class _Source:
    """Observations in their order, of both sides."""

    traffic: Traffic
    plan: Plan
    draw: random.Random
    now_ms: float = 0.0
    number: int = 0
    talks: dict[bool, list[str]] = field(default_factory=lambda: {True: [], False: []})

    def next(self, epoch: int) -> Iterator[Observation]:
        """Yield the next answer's observation, and its rating's."""
        draw, base = self.draw, self.traffic.base
        self.now_ms += draw.expovariate(2 * self.traffic.rate / 1_000)
        self.number += 1
        canary = draw.random() < _HALF
        talks = self.talks[canary]
        if not talks or draw.random() < _HALF:
            talks.append(f"{canary}/{self.number}")
        answer = Observation(
            response_id=str(self.number),
            conversation=talks[-1] if draw.random() < _HALF else draw.choice(talks[-20:]),
            lane="canary" if canary else "control",
            revision=self.plan.version if canary else self.plan.champion,
            epoch=epoch,
            unix_ms=int(self.now_ms),
            bucket=draw.choices(list(_BUCKETS), list(_BUCKETS.values()))[0],
            failed=draw.random() < base or (canary and draw.random() < self.traffic.bad),
            missed=draw.random() < base,
            unsure=draw.random() < base,
            ttft_ms=draw.lognormvariate(0.0, _SPREAD) * _MEDIAN_MS,
        )
        yield answer
        if draw.random() < _RATED:
            yield replace(answer, rating="down" if draw.random() < base else "up")


@dataclass(frozen=True, slots=True)
class Run:
    """The end of a simulated rollout, and the number of canary answers until then."""

    ended: Kind
    canary_answers: int
    seconds: float


def run(plan: Plan, traffic: Traffic, seed: int) -> Run:
    """Run one rollout, decided after each observation of the canary."""
    source = _Source(traffic, plan, random.Random(seed))  # noqa: S311  # a seed repeats a run
    plan = replace(plan, epoch=1)
    state = first_state(plan, State(aliases={CHAMPION: plan.champion}))
    moves = [Move(state=state, author="simulate", reason="", unix_ms=0)]
    evidence, answers, at = Evidence(plan), 0, standings(plan, moves)
    while answers < _LONGEST:
        for seen in source.next(state.epoch):
            evidence.add(seen)
            answers += seen.lane == "canary" and seen.rating is None
        decision = decide(plan, evidence, state, at, Health(champions_loaded=True), source.now_ms)
        if decision.kind not in MOVES:
            continue
        if decision.kind in ("finish", "roll back", "end"):
            return Run(decision.kind, answers, source.now_ms / 1_000)
        state = next_state(plan, decision, state, state.epoch + 1)
        moves.append(Move(state=state, author="simulate", reason=decision.reason, unix_ms=int(source.now_ms)))
        at = standings(plan, moves)
    return Run("hold", answers, source.now_ms / 1_000)


class Row(Struct, frozen=True, kw_only=True):
    """Rollouts of one kind. The quantiles are canary answers to the alarm, of those that were rolled back."""

    base: float
    bad: float
    rollouts: int
    rolled_back: int
    median: int | None = None
    p90: int | None = None
    most: int | None = None
    within_30_s: int = 0


def row(plan: Plan, traffic: Traffic, rollouts: int, seed: int) -> Row:
    """Run so many rollouts, each with a seed of its own."""
    runs = [run(plan, traffic, seed * 1_000_003 + number) for number in range(rollouts)]
    back = [each for each in runs if each.ended == "roll back"]
    counts = sorted(each.canary_answers for each in back)
    found = Row(base=traffic.base, bad=traffic.bad, rollouts=rollouts, rolled_back=len(back))
    if not counts:
        return found
    return replace(
        found,
        median=int(percentile(counts, 0.5)),
        p90=int(percentile(counts, 0.9)),
        most=counts[-1],
        within_30_s=sum(each.seconds <= _SOON_S for each in back),
    )


def trials(rollouts: int, each: int, rate: float, seed: int, console: Console) -> list[Row]:
    """Return a row of equal versions for each base share of bad answers, and one for each share of failures."""
    kinds = [(base, 0.0, rollouts // len(_BASES) + (rollouts % len(_BASES) > at)) for at, base in enumerate(_BASES)]
    kinds += [(_BASE, bad, each) for bad in _BAD]
    with progress_bar(console, "rollouts", len(kinds)) as progress:
        rows: list[Row] = []
        for base, bad, number in kinds:
            rows.append(row(PLAN, Traffic(rate=rate, base=base, bad=bad), number, seed * 100 + len(rows)))
            progress(len(rows))
    return rows


def table(rows: Sequence[Row]) -> str:
    """Return the rows as text."""
    lines = ["base   bad    rolled back   canary answers: median   p90   most   in 30 s"]
    for each in rows:
        counts = [f"{'-' if count is None else count:>6}" for count in (each.median, each.p90, each.most)]
        back = f"{each.rolled_back:>5} of {each.rollouts:<5}"
        lines.append(
            f"{each.base:>4.0%}  {each.bad:>5.0%}  {back}  {counts[0]:>22}{counts[1]}{counts[2]}  {each.within_30_s:>8}"
        )
    return "\n".join(lines)
