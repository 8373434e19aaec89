"""Decide what a rollout does next, by its plan, the evidence and the registry. Pure."""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal, get_args

from msgspec.structs import replace

from ops.lifecycle.rollout.classes import ALL
from ops.lifecycle.rollout.evidence import CONTROL_BAD, Evidence
from ops.lifecycle.rollout.plan import LONGEST_MS, Plan
from ops.lifecycle.rollout.tally import Side
from shared.nouns import counted
from shared.versions.state import Move, Rule, State
from shared.wire.lanes import CHAMPION, Lane

Kind = Literal["begin", "wait", "hold", "freeze", "promote", "step down", "load", "finish", "roll back", "end", "ended"]
MOVES: Final[frozenset[Kind]] = frozenset({"promote", "step down", "load", "finish", "roll back", "end"})

_DEGRADED_MS: Final = 60_000
_FIRST_DEGRADED_MS: Final = 600_000
_FULL: Final = 0.8


@dataclass(frozen=True, slots=True)
class Standing:
    """A rollout's step, and since which epoch and moment it is on it. `best` is its highest step, reached at
    `best_unix_ms`; `downs` counts its steps down. `passed`: after the last step it had the champion's workers load the
    version."""

    began_unix_ms: int
    step: int
    since_epoch: int
    since_unix_ms: int
    best: int
    best_unix_ms: int
    downs: int = 0
    passed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """The state of the system around a rollout. `degraded` are signs of overload, seen for `degraded_ms`; `unknown`
    are reasons why the state is not known; `beyond` is the operator's own figure if it exceeds its bound.
    `champions_loaded`: each live worker of the champion's lane has the canary's version loaded. `slots` are the free
    and the busy ones of each lane's live workers, `busy` the most concurrent requests of the three lanes of a rollout
    lately; None: not known."""

    degraded: Sequence[str] = ()
    degraded_ms: float = 0.0
    unknown: Sequence[str] = ()
    beyond: str | None = None
    paused: str | None = None
    resumed_unix_ms: int = 0
    champions_loaded: bool = False
    slots: Mapping[Lane, int] | None = None
    busy: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """`share` is the new one, of a promotion or a step down."""

    kind: Kind
    reason: str
    share: float = 0.0


def standings(plan: Plan, moves: Sequence[Move]) -> Standing:
    """Return where a rollout stands, by the moves of its controllers, of which the first began it."""
    ruled = [(move, move.state.rule.share) for move in moves if move.state.rule is not None]
    begun, *later = [(move, plan.steps.index(share)) for move, share in ruled if share in plan.steps]
    first, step = begun
    found = Standing(first.unix_ms, step, first.epoch, first.unix_ms, step, first.unix_ms)
    for move, step in later:
        if step == found.step:  # such a move only has the version loaded
            found = dataclasses.replace(found, passed=move.state.loading.get(CHAMPION) == plan.version)
            continue
        best, at = (step, move.unix_ms) if step > found.best else (found.best, found.best_unix_ms)
        downs = found.downs + (step < found.step)
        found = Standing(first.unix_ms, step, move.epoch, move.unix_ms, best, at, downs)
    return found


def decide(plan: Plan, evidence: Evidence, state: State, at: Standing, health: Health, now_unix_ms: float) -> Decision:
    """Return the next decision. Evidence against the canary rolls it back at any time: both sides are under the same
    load, and a canary that is bad enough is what opens a breaker. Only a step down moves a degraded system."""
    if evidence.alarm:
        lost = (
            "" if evidence.lost_beyond is None else f"{evidence.lost_beyond:.0f} customers lost beyond its control's; "
        )
        return Decision(kind="roll back", reason=f"worse than its control: {lost}{_worst(evidence)}")
    if health.beyond is not None:
        return Decision(kind="roll back", reason=health.beyond)
    stands = _standstill(plan, evidence, state, at, health, now_unix_ms)
    if stands is not None:
        return stands
    if state.loading.get(CHAMPION) == plan.version and at.passed and not plan.ab:
        return _finishing(plan, evidence, at, health)
    return _onward(plan, evidence, at, health, now_unix_ms)


def _standstill(
    plan: Plan, evidence: Evidence, state: State, at: Standing, health: Health, now_unix_ms: float
) -> Decision | None:
    """Return why no step is taken now, or one is taken back; None if the evidence decides. A pause or a missing
    approval stops a step up, not the step down of an overloaded system."""
    if (late := _too_long(plan, at, health, now_unix_ms)) is not None:
        return late
    bad_control = _of_control(evidence, now_unix_ms)
    if (back := _step_back(plan, evidence, at, health, bad_control, now_unix_ms)) is not None:
        return back
    if health.paused is not None:
        return Decision(kind="hold", reason=health.paused)
    held = [] if state.rung in (None, CHAMPION) else [f"an operator holds the ladder at {state.rung}"]
    if degraded := [*health.degraded, *bad_control, *held, *health.unknown]:
        return Decision(kind="freeze", reason="; ".join(degraded))
    if (loading := state.loading.get(CHAMPION)) not in (None, plan.version, plan.champion):
        reason = f"the champion's workers load {loading}: wait, or take it off: replyline versions unload"
        return Decision(kind="hold", reason=reason)
    return None


def _too_long(plan: Plan, at: Standing, health: Health, now_unix_ms: float) -> Decision | None:
    """Return the end of a rollout that has lasted, or has been on its highest step, for too long."""
    if now_unix_ms - at.began_unix_ms > LONGEST_MS:
        return Decision(kind="end", reason="it has lasted 13 days, and observations are kept for 14")
    stalled_ms = now_unix_ms - max(health.resumed_unix_ms, at.best_unix_ms)
    if health.paused is None and stalled_ms > (plan.progress_s + plan.min_s) * 1_000:
        return Decision(kind="end", reason=f"it has reached no new step for {plan.progress_s / 3_600:g} h")
    return None


def _step_back(
    plan: Plan, evidence: Evidence, at: Standing, health: Health, bad_control: Sequence[str], now_unix_ms: float
) -> Decision | None:
    """Return the step down of a rollout that has been degraded for a minute, or its end after ten on the first step."""
    overload = "; ".join([*health.degraded, *bad_control])
    since_ms = abs(now_unix_ms - at.since_unix_ms)  # another controller's clock, that made the move, may be ahead
    longest_ms = max(health.degraded_ms if health.degraded else 0.0, evidence.control_bad_ms if bad_control else 0.0)
    if at.step and min(longest_ms, since_ms) >= _DEGRADED_MS:
        share = plan.steps[at.step - 1]
        return Decision(kind="step down", reason=f"degraded for a minute: {overload}: back to {share:.0%}", share=share)
    if not at.step and min(longest_ms, since_ms) >= _FIRST_DEGRADED_MS:
        return Decision(kind="end", reason=f"degraded for ten minutes on the first step: {overload}")
    return None


def lacks_room(plan: Plan, share: float, health: Health) -> str | None:
    """Return why a share does not fit into the slots of the canary's and of the control's workers, or these differ, so
    that the smaller lane answers later by its size alone; None if it fits."""
    sizes = {side: health.slots[side] for side in _sides(plan)} if health.slots else {}
    if len(set(sizes.values())) > 1:
        each = " and ".join(f"lane {side} has {counted(size, 'slot')}" for side, size in sizes.items())
        return f"lanes of unequal size: {each}; start or stop workers until both have the same"
    needed = share * health.busy
    for side in _sides(plan):
        slots = health.slots[side] if health.slots else math.inf
        if needed > _FULL * slots:
            of_all = f"{share:.0%} of {health.busy} requests at once need {needed:.1f}"
            return (
                f"no room: {of_all} of lane {side}'s {slots} slots, and {_FULL:.0%} are the most; {_more_workers(plan)}"
            )
    return None


def _finishing(plan: Plan, evidence: Evidence, at: Standing, health: Health) -> Decision:
    if (doubt := _doubt(plan, evidence, at)) is not None:
        return Decision(kind="hold", reason=doubt)
    if few := evidence.lacking(_sides(plan)):
        named = ", ".join(f"{name} has {answers}" for name, answers in few.items())
        return Decision(kind="hold", reason=f"too few answers: {named} of {plan.min_answers}")
    if health.champions_loaded:
        return Decision(kind="finish", reason="every step is passed and the champion's workers have it loaded")
    return Decision(kind="wait", reason="the champion's workers load it")


def _onward(plan: Plan, evidence: Evidence, at: Standing, health: Health, now_unix_ms: float) -> Decision:
    """Return the next step of all classes. A conversation has one share, so a class ahead of the rest would pass a step
    without an answer at that step's share."""
    waiting = _waiting(plan, evidence, at, now_unix_ms)
    if waiting is not None:
        return waiting
    if (doubt := _doubt(plan, evidence, at)) is not None:
        return Decision(kind="hold", reason=doubt)
    if at.step < len(plan.steps) - 1:
        share = plan.steps[at.step + 1]
        full = lacks_room(plan, share, health)
        promotion = Decision(kind="promote", reason=f"not worse so far: up to {share:.0%}", share=share)
        return promotion if full is None else Decision(kind="hold", reason=full)
    if plan.ab:
        return Decision(kind="end", reason="the comparison is over")
    return Decision(kind="load", reason="every class has passed the last step")


def _doubt(plan: Plan, evidence: Evidence, at: Standing) -> str | None:
    """Return why nothing is promoted: a test leans half the way to its alarm, or would give one if it had all of alpha;
    or the canary may lose more questions of this step than its control and the margin: a test that finds 30 % bad
    answers soon says little of five percent; or another lane answers questions of this step, so that the version is
    not judged by them."""
    alarm = -math.log(plan.alpha)
    if any(test.log_e >= alarm or test.log_weighted >= alarm / 2 for test in evidence.tests()):
        return f"in doubt: {_worst(evidence)}"
    if (no_time := _no_time(plan, evidence, at)) is not None:
        return no_time
    for name, shares in evidence.loses_more(at.since_epoch).items() if plan.control else ():
        lost = " and ".join(f"{share:.1%} of the {side}'s" for side, share in shares.items())
        return f"in doubt: not answered in time{_in(name)} are {lost} questions; {plan.margin:.0%} more may pass"
    return None


def _no_time(plan: Plan, evidence: Evidence, at: Standing) -> str | None:
    """Return which lane has no time for its questions, so that the champion answers them; None if both have time."""
    for name, shares in evidence.diverted(_sides(plan), at.since_epoch).items():
        of = " and ".join(f"{share:.0%} of lane {side}'s" for side, share in shares.items())
        return f"no time: the champion answers {of} questions{_in(name)}; {_more_workers(plan)}"
    return None


def _waiting(plan: Plan, evidence: Evidence, at: Standing, now_unix_ms: float) -> Decision | None:
    """Return a wait until the step's time is over, then a hold as long as a class has too few answers to be judged by;
    None if it can be judged."""
    least_s = plan.min_s if not at.downs else max(plan.min_s, _DEGRADED_MS / 1_000) * 2**at.downs
    if now_unix_ms - at.since_unix_ms < least_s * 1_000:
        return Decision(kind="wait", reason="the step's time is not over")
    fewest = {
        bucket: min(evidence.answered(side, bucket=bucket, since_epoch=at.since_epoch) for side in _sides(plan))
        for bucket in plan.classes
    }
    few = ", ".join(f"{bucket} has {count}" for bucket, count in fewest.items() if count < plan.min_answers)
    if not few:
        return None
    cause = _no_time(plan, evidence, at) or _no_model(plan, evidence, at)
    return Decision(kind="hold", reason=f"too few answers: {few} of {plan.min_answers}{f'; {cause}' if cause else ''}")


def _no_model(plan: Plan, evidence: Evidence, at: Standing) -> str | None:
    """Return which lane's model answers few of its questions, or none that a gateway observed; None if no lane's."""
    for side in _sides(plan):
        asked, answered = evidence.asked(side, at.since_epoch), evidence.answered(side, since_epoch=at.since_epoch)
        if not asked:
            return f"no question of lane {side} counts: none came, or each was stopped or asked for less time"
        if answered < asked / 2:
            of_all = f"{answered} of {counted(asked, 'question')}"
            return f"the model of lane {side} answered {of_all}; look at its workers' logs"
    return None


def _more_workers(plan: Plan) -> str:
    """Return the remedy for a lane that is too small. With a control, one larger lane would hold the rollout too."""
    return f"add {'as many ' if plan.control else ''}workers to lane {' and to lane '.join(_sides(plan))}"


def _sides(plan: Plan) -> tuple[Side, ...]:
    return ("canary", "control") if plan.control else ("canary",)


def _of_control(evidence: Evidence, now_unix_ms: float) -> list[str]:
    bad = evidence.control_bad(now_unix_ms)
    return [f"the control itself is bad in {bad:.0%} of its answers"] if bad is not None and bad >= CONTROL_BAD else []


def _worst(evidence: Evidence) -> str:
    """Return the metric and class with the most evidence, and its figures."""
    test = evidence.worst
    shares = [f"{share:.1%} of the {side}'s" for side in get_args(Side) if (share := test.share(side)) is not None]
    return f"{test.metric}{_in(test.of)}, {' and '.join(shares)} answers; e-value {evidence.numbers()['e']:.3g}"


def _in(name: str) -> str:
    return "" if name == ALL else f" in {name}"


def first_state(plan: Plan, state: State) -> State:
    """Return the state that a rollout begins with."""
    aliases = {**state.aliases, "canary": plan.version}
    if plan.control:
        aliases["control"] = plan.champion
    rule = _rule(plan, plan.steps[0])
    return replace(state, epoch=plan.epoch, effective_unix_ms=0, aliases=aliases, rule=rule)


def next_state(plan: Plan, decision: Decision, state: State, epoch: int) -> State:
    """Return the state of an epoch that a decision of `MOVES` leads to, from the one that holds now."""
    state = replace(state, epoch=epoch, effective_unix_ms=0)
    loading = {lane: to for lane, to in state.loading.items() if to != plan.version}
    if decision.kind in ("promote", "step down"):
        loading = state.loading if decision.kind == "promote" else loading
        return replace(state, rule=_rule(plan, decision.share), loading=loading)
    if decision.kind == "load":
        return replace(state, loading={**state.loading, CHAMPION: plan.version})
    aliases = {alias: to for alias, to in state.aliases.items() if alias not in ("canary", "control")}
    if decision.kind == "finish":
        aliases |= {CHAMPION: plan.version, "previous": plan.champion}
    return replace(state, aliases=aliases, loading=loading, rule=None)


def _rule(plan: Plan, share: float) -> Rule:
    return Rule(salt=plan.salt, share=share, shares=dict.fromkeys(plan.classes, share), control=plan.control)
