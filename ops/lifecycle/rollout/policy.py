"""Decide what a rollout does next, by its plan, the evidence and the registry. Pure."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, get_args

from msgspec.structs import replace

from ops.lifecycle.rollout.classes import ALL
from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.tally import Side
from shared.versions.state import Move, Rule, State
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Bucket

Kind = Literal["begin", "wait", "hold", "freeze", "promote", "step down", "load", "finish", "roll back", "end", "ended"]
MOVES: Final[frozenset[Kind]] = frozenset({"promote", "step down", "load", "finish", "roll back", "end"})

_CONTROL_BAD: Final = 0.25
_DEGRADED_MS: Final = 60_000
_FULL: Final = 0.8


@dataclass(frozen=True, slots=True)
class Standing:
    """The step of a class, and since which epoch and moment it is on it. `best` is the highest step so far, reached at
    `best_unix_ms`; `downs` counts the steps down. `passed`: after the last step the rollout itself had the champion's
    workers load the version."""

    step: int
    since_epoch: int
    since_unix_ms: int
    best: int
    best_unix_ms: int
    downs: int = 0
    passed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of the system beside the evidence. `degraded` are signs of overload, seen for `degraded_ms`; `unknown`
    are reasons why the state cannot be told. `champions_loaded`: each live worker of the champion's lane has the
    canary's version loaded. `slots` are the free and the busy ones of each lane's live workers, `busy` the requests
    that the three lanes of a rollout had at once lately; None: not known."""

    degraded: Sequence[str] = ()
    degraded_ms: float = 0.0
    unknown: Sequence[str] = ()
    paused: str | None = None
    resumed_unix_ms: int = 0
    champions_loaded: bool = False
    slots: Mapping[Lane, int] | None = None
    busy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`shares` are the classes' new shares, of a promotion or a step down."""

    kind: Kind
    reason: str
    shares: dict[str, float] = field(default_factory=dict)


def standings(plan: Plan, moves: Sequence[Move]) -> dict[Bucket, Standing]:
    """Return where each class stands, by the moves of the rollout's own controllers."""
    found: dict[Bucket, Standing] = {}
    last: Rule | None = None
    for move in moves:
        rule = move.state.rule
        if move.epoch < plan.epoch or rule is None:
            continue
        loads = rule == last and move.state.loading.get(CHAMPION) == plan.version
        last = rule
        for bucket in plan.classes:
            step = plan.steps.index(rule.shares[bucket]) if rule.shares.get(bucket) in plan.steps else 0
            before = found.get(bucket)
            if before is None:
                found[bucket] = Standing(step, move.epoch, move.unix_ms, step, move.unix_ms)
            elif before.step != step:
                best, at = (step, move.unix_ms) if step > before.best else (before.best, before.best_unix_ms)
                downs = before.downs + (step < before.step)
                found[bucket] = Standing(step, move.epoch, move.unix_ms, best, at, downs)
            elif loads:
                found[bucket] = dataclasses.replace(before, passed=True)
    return found


def decide(
    plan: Plan, evidence: Evidence, state: State, at: dict[Bucket, Standing], health: Health, now_unix_ms: float
) -> Decision:
    """Return the next decision. Evidence against the canary rolls it back at any time: both sides are under the same
    load, and a canary that is bad enough is what opens a breaker. Nothing else moves while the system is degraded."""
    if evidence.alarm:
        return Decision(kind="roll back", reason=f"worse than its control: {_worst(evidence)}")
    stands = _standstill(plan, evidence, state, at, health, now_unix_ms)
    if stands is not None:
        return stands
    if CHAMPION in state.loading and not plan.ab and all(standing.passed for standing in at.values()):
        return _finishing(plan, evidence, health)
    decision = _onward(plan, evidence, at, now_unix_ms)
    full = lacks_room(plan, max(decision.shares.values()), health) if decision.kind == "promote" else None
    return decision if full is None else Decision(kind="hold", reason=full)


def _standstill(
    plan: Plan, evidence: Evidence, state: State, at: dict[Bucket, Standing], health: Health, now_unix_ms: float
) -> Decision | None:
    """Return why no step is taken now, or is taken back, whatever the evidence; None if one may be taken."""
    if health.paused is not None:
        return Decision(kind="hold", reason=health.paused)
    best_unix_ms = max(health.resumed_unix_ms, *(standing.best_unix_ms for standing in at.values()))
    if now_unix_ms - best_unix_ms > (plan.progress_s + plan.min_s) * 1_000:
        return Decision(kind="end", reason=f"it has reached no new step for {plan.progress_s / 3_600:g} h")
    overload = [*health.degraded, *_of_control(evidence, now_unix_ms)]
    is_long = health.degraded_ms >= _DEGRADED_MS or len(overload) > len(health.degraded)
    if overload and is_long and (down := _step_down(plan, at, now_unix_ms)):
        told = ", ".join(f"{bucket} back to {share:.0%}" for bucket, share in down.items())
        return Decision(kind="step down", reason=f"degraded for a minute: {'; '.join(overload)}: {told}", shares=down)
    if degraded := [*overload, *_held(state), *health.unknown]:
        return Decision(kind="freeze", reason="; ".join(degraded))
    if (loading := state.loading.get(CHAMPION, plan.version)) != plan.version:
        reason = f"the champion's workers load {loading}: wait, or take it off: replyline versions unload"
        return Decision(kind="hold", reason=reason)
    return None


def _step_down(plan: Plan, at: dict[Bucket, Standing], now_unix_ms: float) -> dict[str, float]:
    """Return the shares one step lower; empty on the first step, or if the last move was less than a minute ago."""
    if any(now_unix_ms - each.since_unix_ms < _DEGRADED_MS for each in at.values()):
        return {}
    if not any(each.step for each in at.values()):
        return {}
    return {bucket: plan.steps[max(each.step - 1, 0)] for bucket, each in at.items()}


def lacks_room(plan: Plan, share: float, health: Health) -> str | None:
    """Return why a share does not fit into the slots of the canary's and of the control's workers; None if it does."""
    lanes: tuple[Lane, ...] = ("canary", "control") if plan.control else ("canary",)
    for lane in lanes:
        slots, needed = (health.slots or {}).get(lane), share * health.busy
        if slots is not None and needed > _FULL * slots:
            of_all = f"{share:.0%} of {health.busy} requests at once need {needed:.1f}"
            return f"no room: {of_all} of lane {lane}'s {slots} slots, and {_FULL:.0%} are the most; add workers"
    return None


def _finishing(plan: Plan, evidence: Evidence, health: Health) -> Decision:
    if _in_doubt(plan, evidence):
        return Decision(kind="hold", reason=f"in doubt: {_worst(evidence)}")
    if few := evidence.lacking(_sides(plan)):
        named = ", ".join(f"{name} has {answers}" for name, answers in few.items())
        return Decision(kind="hold", reason=f"too few answers: {named} of {plan.min_answers}")
    if health.champions_loaded:
        return Decision(kind="finish", reason="every step is passed and the champion's workers have it loaded")
    return Decision(kind="wait", reason="the champion's workers load it")


def _onward(plan: Plan, evidence: Evidence, at: dict[Bucket, Standing], now_unix_ms: float) -> Decision:
    """Return the next step of all classes. None rises before the others: a conversation has one share, so that a class
    ahead of the rest would pass a step without an answer at that step's share."""
    if any(_lacks(plan, evidence, bucket, at[bucket], now_unix_ms) for bucket in plan.classes):
        return _waiting(plan, evidence, at, now_unix_ms)
    if _in_doubt(plan, evidence):
        return Decision(kind="hold", reason=f"in doubt: {_worst(evidence)}")
    return _promotion(plan, at)


def _in_doubt(plan: Plan, evidence: Evidence) -> bool:
    """Return whether a test leans so far against the canary that nothing is promoted: half the way to its alarm, or it
    would give one if it had all of alpha."""
    alarm = -math.log(plan.alpha)
    return any(test.log_e >= alarm or test.log_weighted >= alarm / 2 for test in evidence.tests())


def _promotion(plan: Plan, at: dict[Bucket, Standing]) -> Decision:
    last = len(plan.steps) - 1
    rising = [bucket for bucket in plan.classes if at[bucket].step < last]
    if rising:
        steps = {bucket: at[bucket].step + (bucket in rising) for bucket in plan.classes}
        shares: dict[str, float] = {bucket: plan.steps[step] for bucket, step in steps.items()}
        told = ", ".join(f"{bucket} to {shares[bucket]:.0%}" for bucket in rising)
        return Decision(kind="promote", reason=f"not worse so far: {told}", shares=shares)
    if plan.ab:
        return Decision(kind="end", reason="the comparison is over")
    return Decision(kind="load", reason="every class has passed the last step")


def _waiting(plan: Plan, evidence: Evidence, at: dict[Bucket, Standing], now_unix_ms: float) -> Decision:
    """Return a wait while a class's time has not passed, else a hold: it has too few answers to be judged by."""
    lacking = {
        bucket: lack
        for bucket in plan.classes
        if (lack := _lacks(plan, evidence, bucket, at[bucket], now_unix_ms)) is not None
    }
    if all(lack == "time" for lack in lacking.values()):
        return Decision(kind="wait", reason="the step's time is not over")
    few = ", ".join(f"{bucket} has {lack}" for bucket, lack in lacking.items() if lack != "time")
    return Decision(kind="hold", reason=f"too few answers: {few} of {plan.min_answers}")


def _lacks(plan: Plan, evidence: Evidence, bucket: Bucket, standing: Standing, now_unix_ms: float) -> str | None:
    """Return what a class lacks before its next step: time, or how many answers it has."""
    least_s = plan.min_s if not standing.downs else max(plan.min_s, _DEGRADED_MS / 1_000) * 2**standing.downs
    if now_unix_ms - standing.since_unix_ms < least_s * 1_000:
        return "time"
    fewest = min(evidence.answered(side, bucket=bucket, since_epoch=standing.since_epoch) for side in _sides(plan))
    return None if fewest >= plan.min_answers else str(fewest)


def _sides(plan: Plan) -> tuple[Side, ...]:
    return ("canary", "control") if plan.control else ("canary",)


def _held(state: State) -> list[str]:
    held = state.rung not in (None, "champion")
    return [f"an operator holds the ladder at {state.rung}"] if held else []


def _of_control(evidence: Evidence, now_unix_ms: float) -> list[str]:
    bad = evidence.control_bad(now_unix_ms)
    return [f"the control itself is bad in {bad:.0%} of its answers"] if bad is not None and bad >= _CONTROL_BAD else []


def _worst(evidence: Evidence) -> str:
    """Return the metric and class with the most evidence, and its figures."""
    test = evidence.worst
    shares = [f"{share:.1%} of the {side}'s" for side in get_args(Side) if (share := test.share(side)) is not None]
    of = "" if test.of == ALL else f" in {test.of}"
    return f"{test.metric}{of}, {' and '.join(shares)} answers; e-value {evidence.numbers()['e']:.3g}"


def first_state(plan: Plan, state: State) -> State:
    """Return the state that a rollout begins with."""
    aliases = {**state.aliases, "canary": plan.version}
    if plan.control:
        aliases["control"] = plan.champion
    rule = _rule(plan, dict.fromkeys(plan.classes, plan.steps[0]))
    return replace(state, epoch=plan.epoch, effective_unix_ms=0, aliases=aliases, rule=rule)


def next_state(plan: Plan, decision: Decision, state: State, epoch: int) -> State:
    """Return the state of an epoch that a decision of `MOVES` leads to, from the one that holds now."""
    state = replace(state, epoch=epoch, effective_unix_ms=0)
    loading = {lane: to for lane, to in state.loading.items() if to != plan.version}
    if decision.kind == "promote":
        return replace(state, rule=_rule(plan, decision.shares))
    if decision.kind == "step down":
        return replace(state, rule=_rule(plan, decision.shares), loading=loading)
    if decision.kind == "load":
        return replace(state, loading={**state.loading, CHAMPION: plan.version})
    aliases = {alias: to for alias, to in state.aliases.items() if alias not in ("canary", "control")}
    if decision.kind == "finish":
        aliases |= {CHAMPION: plan.version, "previous": plan.champion}
    return replace(state, aliases=aliases, loading=loading, rule=None)


def _rule(plan: Plan, shares: dict[str, float]) -> Rule:
    """Classes that the plan does not ask for go with the least of those that it does."""
    return Rule(salt=plan.salt, share=min(shares.values()), shares=shares, control=plan.control)
