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
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket
from shared.wire.reports import Observation

_BUCKETS: Final[dict[Bucket, float]] = {"short": 0.6, "medium": 0.3, "long": 0.1}
_MEDIAN_MS: Final = 300.0
_SPREAD: Final = 0.5
_RATED: Final = 0.1
_HALF: Final = 0.5
_RUNNING: Final = 20
_MOST_RUNNING: Final = 500
_BURST_BAD: Final = 0.9
_BURST_ANSWERS: Final = 40
_CRASH_ANSWERS: Final = 100
_CRASH_MS: Final = 800.0
_HANG_MS: Final = 4_000.0
_LONGEST: Final = 2_500
_DECIDED_EVERY: Final = 10
_SOON_S: Final = 30.0
_NEVER: Final = 1_000_000
PLAN: Final = Plan(version="canary", champion="champion", steps=(0.01, 0.1, 0.5), min_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """The questions of both sides, and how they are answered.

    `rate` is the answers a second of each side. Of each side's answers a share `base` fails, as many miss their
    deadline or are unsure, and of the rated ones as many are rated down. With `bursts` outages begin and end in which
    nearly all of both sides' are bad. With `crashed` workers of either side crash: that many of its answers are bad
    within `_CRASH_MS`, with one of the other side between each two; with `hang` they hang instead, and miss their
    deadlines one after another within `_HANG_MS`. Of the canary's answers a share `bad` fails
    besides, after `good` ones, and only in the class `only`, which has a `share` of the questions. A conversation has
    `turns` questions on average. A promotion brings running conversations to both sides; on the canary's their first
    text there comes `moved_ms` later."""

    name: str = ""
    rate: float = 2.0
    base: float = 0.02
    bursts: bool = False
    crashed: int = 0
    hang: bool = False
    bad: float = 0.0
    good: int = 0
    only: str = ""
    share: float = 0.0
    turns: float = 2.0
    moved_ms: float = 0.0


def equal(rate: float) -> list[Traffic]:
    """Return the kinds of traffic of two equal versions."""
    kinds = [Traffic(name=f"equal, {base:.0%} bad", rate=rate, base=base) for base in (0.01, 0.05, 0.2, 0.6, 1.0)]
    return [
        *kinds,
        Traffic(name="equal, outages", rate=rate, bursts=True),
        Traffic(name="equal, crashes of 8", rate=rate, crashed=8),
        Traffic(name="equal, hangs of 8", rate=rate, crashed=8, hang=True),
        Traffic(name="equal, 20 turns", rate=rate, turns=20.0),
        Traffic(name="equal, moved 300 ms later", rate=rate, turns=12.0, moved_ms=300.0),
    ]


def worse(rate: float) -> list[Traffic]:
    """Return the kinds of traffic of a canary that is worse."""
    kinds = [Traffic(name=f"{bad:.0%} bad", rate=rate, bad=bad) for bad in (0.15, 0.2, 0.3, 0.5, 1.0)]
    kinds += [Traffic(name=f"{bad:.0%} bad after 1,000", rate=rate, bad=bad, good=1_000) for bad in (0.3, 1.0)]
    kinds += [
        Traffic(name=f"bad in {only} only, {share:.0%}", rate=rate, bad=1.0, only=only, share=share)
        for only in ("long", "lang:zh", "tenant:acme")
        for share in (0.01, 0.02, 0.05)
    ]
    return kinds


@dataclass(slots=True)
class _Source:
    """Observations in their order, of both sides. `running` are each side's conversations, and whether one has just
    come from another lane. `failed` are the conversations in which the canary was worse. `asked_ms` is when the answer
    that ends was asked for, 0 if unknown; after each of the `crashes` other workers answer."""

    traffic: Traffic
    plan: Plan
    draw: random.Random
    now_ms: float = 0.0
    number: int = 0
    canary_answers: int = 0
    turned_ms: float = 0.0
    failed: set[str] = field(default_factory=set)
    burst: bool = False
    ending: list[tuple[Lane, float]] = field(default_factory=list)
    crashes: int = 0
    asked_ms: float = 0.0
    running: dict[Lane, list[tuple[str, bool]]] = field(default_factory=lambda: {"canary": [], "control": []})

    def next(self, epoch: int) -> Iterator[Observation]:
        """Yield the next answer's observation, and its rating's."""
        draw, traffic = self.draw, self.traffic
        self.number += 1
        lane, base = self._begin()
        is_hung = traffic.hang and base > traffic.base
        conversation, moved = self._conversation(lane)
        bucket, language, tenant, within = self._class()
        if self.canary_answers == traffic.good and lane == "canary":
            self.turned_ms = self.now_ms
        self.canary_answers += lane == "canary"
        is_bad = lane == "canary" and within and self.canary_answers > traffic.good and draw.random() < traffic.bad
        if is_bad:
            self.failed.add(conversation)
        dearer_ms = traffic.moved_ms if moved and lane == "canary" else 0.0
        revision = self.plan.version if lane == "canary" else self.plan.champion
        answer = Observation(
            response_id=str(self.number),
            conversation=conversation,
            lane=lane,
            revision=revision,
            answered_by=revision,
            epoch=epoch,
            unix_ms=int(self.now_ms),
            asked_unix_ms=int(self.asked_ms),
            worker_id=f"{lane}-{self.crashes - is_hung}",
            bucket=bucket,
            language=language,
            tenant=tenant,
            moved=moved,
            failed=is_bad or draw.random() < (0.0 if is_hung else base),
            missed=draw.random() < base,
            unsure=draw.random() < (traffic.base if is_hung else base),
            ttft_ms=draw.lognormvariate(0.0, _SPREAD) * _MEDIAN_MS + dearer_ms,
        )
        yield answer
        if draw.random() < _RATED and not is_hung:
            yield replace(answer, rating="down" if draw.random() < base else "up")

    def _begin(self) -> tuple[Lane, float]:
        """Advance to the next answer; return its side and the chance that it is bad on either side."""
        draw, traffic = self.draw, self.traffic
        if self.ending:
            self.now_ms += (_HANG_MS if traffic.hang else _CRASH_MS) / (2 * traffic.crashed)
            return self.ending.pop()
        self.now_ms += draw.expovariate(2 * traffic.rate / 1_000)
        self.asked_ms = max(0.0, self.now_ms - _MEDIAN_MS) if traffic.hang else 0.0
        if traffic.bursts and draw.random() < 1 / _BURST_ANSWERS:
            self.burst = not self.burst
        sides: tuple[Lane, Lane] = ("canary", "control")
        lane, other = sides if draw.random() < _HALF else sides[::-1]
        if traffic.crashed and draw.random() < 1 / _CRASH_ANSWERS:
            self.ending = [(lane, 1.0), (other, traffic.base)] * traffic.crashed
            self.crashes += 1
        return lane, _BURST_BAD if self.burst else traffic.base

    def promote(self, times: float) -> None:
        """Bring running conversations of the champion's to both sides, until each has `times` as many."""
        for lane, running in self.running.items():
            more = min(round(len(running) * times), _MOST_RUNNING) - len(running)
            running += [(f"{lane}/{self.number}/{at}", True) for at in range(more)]

    def _conversation(self, lane: Lane) -> tuple[str, bool]:
        """Return one of the side's conversations, and whether this is its first answer since it was moved there."""
        running, draw = self.running[lane], self.draw
        at = draw.randrange(max(len(running), _RUNNING))
        if at >= len(running):
            running.append((f"{lane}/{self.number}", False))
            return running[-1]
        found = running[at]
        ends = draw.random() < 1 / self.traffic.turns
        running[at] = (f"{lane}/{self.number}", False) if ends else (found[0], False)
        return found

    def _class(self) -> tuple[Bucket, str, str, bool]:
        """Return a question's bucket, language and tenant, and whether it is of the class that the canary is bad in."""
        bucket = self.draw.choices(list(_BUCKETS), list(_BUCKETS.values()))[0]
        if not self.traffic.only:
            return bucket, "en", "shop", True
        within, only = self.draw.random() < self.traffic.share, self.traffic.only
        if only == "long":
            return "long" if within else "short" if bucket == "long" else bucket, "en", "shop", within
        language, tenant = ("zh", "shop") if only.startswith("lang:") else ("en", "acme")
        return bucket, language if within else "en", tenant if within else "shop", within


@dataclass(frozen=True, slots=True)
class Run:
    """The end of a simulated rollout. `canary_answers` and `seconds` count from the canary's first bad answer on,
    `failed` the conversations in which it was worse than its control. After `step` answers the canary was promoted
    first; None if it never was."""

    ended: Kind
    canary_answers: int
    seconds: float
    failed: int
    step: int | None = None


def run(plan: Plan, traffic: Traffic, seed: int) -> Run:
    """Run one rollout, decided at an alarm and every few answers."""
    source = _Source(traffic, plan, random.Random(seed))  # noqa: S311  # a seed repeats a run
    plan = replace(plan, epoch=1)
    state = first_state(plan, State(aliases={CHAMPION: plan.champion}))
    moves = [Move(state=state, author="simulate", reason="", unix_ms=0)]
    evidence, at = Evidence(plan), standings(plan, moves)
    kind: Kind = "hold"
    step: int | None = None
    while source.canary_answers < _LONGEST + traffic.good and kind not in ("finish", "roll back", "end"):
        for seen in source.next(state.epoch):
            evidence.add(seen)
        if not evidence.alarm and source.number % _DECIDED_EVERY:
            continue
        decision = decide(plan, evidence, state, at, Health(champions_loaded=True), source.now_ms)
        kind = decision.kind
        if kind not in MOVES:
            continue
        if kind == "promote" and state.rule is not None:
            step = step or source.canary_answers
            source.promote(decision.share / state.rule.share)
        state = next_state(plan, decision, state, state.epoch + 1)
        moves.append(Move(state=state, author="simulate", reason=decision.reason, unix_ms=int(source.now_ms)))
        at = standings(plan, moves)
    answers, seconds = source.canary_answers - traffic.good, (source.now_ms - source.turned_ms) / 1_000
    return Run(kind, answers, seconds, len(source.failed), step)


class TrialRow(Struct, frozen=True, kw_only=True):
    """Rollouts of one kind. The quantiles are canary answers from the first bad one to the alarm, of the rollouts that
    were rolled back; `failed` is the p90 of the conversations in which the canary was worse, `step` the median of the
    canary's answers on the first step; None if more than half of the rollouts did not pass it."""

    name: str
    rollouts: int
    rolled_back: int
    promoted: int
    median: int | None = None
    p90: int | None = None
    most: int | None = None
    failed: int | None = None
    step: int | None = None
    within_30_s: int = 0


def row(plan: Plan, traffic: Traffic, rollouts: int, seed: int) -> TrialRow:
    """Run the rollouts, each with another seed. A rollout that becomes bad late is held at its first step."""
    plan = replace(plan, min_answers=_NEVER, progress_s=_NEVER) if traffic.good else plan
    runs = [run(plan, traffic, seed * 1_000_003 + number) for number in range(rollouts)]
    back = [each for each in runs if each.ended == "roll back"]
    counts = sorted(each.canary_answers for each in back)
    promoted = sum(each.ended == "finish" for each in runs)
    steps = sorted(_NEVER if each.step is None else each.step for each in runs)
    step = median if (median := int(percentile(steps, 0.5))) < _NEVER else None
    found = TrialRow(name=traffic.name, rollouts=rollouts, rolled_back=len(back), promoted=promoted, step=step)
    if not counts:
        return found
    return replace(
        found,
        median=int(percentile(counts, 0.5)),
        p90=int(percentile(counts, 0.9)),
        most=counts[-1],
        failed=int(percentile(sorted(each.failed for each in back), 0.9)),
        within_30_s=sum(each.seconds <= _SOON_S for each in back),
    )


def trials(rollouts: int, each: int, rate: float, seed: int, console: Console) -> list[TrialRow]:
    """Return a row of each kind of equal versions and of each kind of a worse canary."""
    kinds = [(traffic, rollouts) for traffic in equal(rate)] + [(traffic, each) for traffic in worse(rate)]
    with progress_bar(console, "rollouts", len(kinds)) as progress:
        rows: list[TrialRow] = []
        for traffic, number in kinds:
            rows.append(row(PLAN, traffic, number, seed * 100 + len(rows)))
            progress(len(rows))
    return rows


def table(rows: Sequence[TrialRow]) -> str:
    """Return the rows as text."""
    lines = [f"{'':27}rolled back  promoted  a step   canary answers: median   p90  most  failed  in 30 s"]
    for each in rows:
        figures = (each.step, each.median, each.p90, each.most, each.failed)
        step, median, p90, most, failed = ("-" if figure is None else f"{figure}" for figure in figures)
        back = f"{each.rolled_back:>5} of {each.rollouts:<5}{each.promoted:>8}{step:>8}"
        lines.append(f"{each.name:<25}{back}  {median:>24}{p90:>6}{most:>6}{failed:>8}{each.within_30_s:>9}")
    return "\n".join(lines)
