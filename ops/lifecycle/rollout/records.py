"""A rollout as read from the registry's records, and the record to write next. Pure.

All that a controller knows is in the log: another one that starts in its place writes what this one would have written.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan, unpack
from ops.lifecycle.rollout.policy import MOVES, Decision, Health, decide, first_state, next_state, standings
from ops.lifecycle.versions.moves import ROLLOUT_AUTHOR
from shared.versions.registry import Noted, Registry
from shared.versions.state import Move, State
from shared.wire.lanes import CHAMPION

Outcome = Literal["finished", "rolled_back", "stopped"]

POSTED: Final = "posted"
_JUDGED: Final = ("wait", "hold", "freeze")
_NUMBERS: Final = re.compile(r"\d+(\.\d+)?")
_FREE_NOTES: Final = 8
_GAP_MS: Final = 60_000
_MOST_DOUBLED: Final = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The newest rollout: its notes, and the moves of all authors since it began."""

    id: str
    plan: Plan
    notes: Sequence[Noted]
    moves: Sequence[Move]

    @property
    def author(self) -> str:
        """Return the name that its moves bear."""
        return ROLLOUT_AUTHOR + self.id

    @property
    def ended(self) -> Noted | None:
        return next((note for note in self.notes if note.kind == "ended"), None)

    @property
    def held(self) -> str | None:
        """Return who has paused it and why; None after a resume and without a pause."""
        last = next((note for note in reversed(self.notes) if note.kind in ("paused", "resumed")), None)
        return last.reason if last is not None and last.kind == "paused" else None

    @property
    def paused(self) -> str | None:
        """Return who has paused it and why, or that its step waits for an approval; None if it is not paused."""
        if (held := self.held) is not None:
            return held
        if not self.plan.approve or not self.begun or standings(self.plan, self.own_moves).passed:
            return None
        is_approved = any(
            note.numbers.get("epoch", 0) >= self.own_moves[-1].epoch for note in self.notes if note.kind == "approved"
        )
        return None if is_approved else "waits for: replyline rollout approve"

    @property
    def resumed_unix_ms(self) -> int:
        """Return when it was resumed or approved last; 0 if never."""
        return max((note.unix_ms for note in self.notes if note.kind in ("resumed", "approved")), default=0)

    @property
    def judgements(self) -> list[Noted]:
        """Return the notes of decisions without a move."""
        return [note for note in self.notes if note.kind in _JUDGED]

    @property
    def judged(self) -> str:
        """Return the last decision without a move that was noted."""
        return self.judgements[-1].kind if self.judgements else "wait"

    @property
    def own_moves(self) -> list[Move]:
        """Return the moves that its controllers made."""
        return [move for move in self.moves if move.author == self.author]

    @property
    def begun(self) -> bool:
        return bool(self.moves) and self.moves[0].author == self.author

    @property
    def ending(self) -> Move | None:
        """Return the move that took its rule away; not one that was replaced while it waited for its time."""
        ruled = [move for move in self.moves if not self.rules(move.state)]
        return next((move for move in ruled if not any(_replaces(later, move) for later in self.moves)), None)

    @property
    def num_moves(self) -> int:
        """Return how many of the moves are up to the one that took its rule away."""
        return len(self.moves) if self.ending is None else self.moves.index(self.ending) + 1

    @property
    def outcome(self) -> Outcome:
        """Return how it ended, by the move that took its rule away: finished, rolled_back or stopped."""
        last = self.ending
        if last is None or last.author != self.author:
            return "stopped"
        if last.state.aliases.get(CHAMPION) == self.plan.version:
            return "finished"
        is_beyond = last.numbers.get("own", -math.inf) > self.plan.at_most or "lost_beyond" in last.numbers
        return "rolled_back" if is_beyond or last.numbers["e"] * self.plan.alpha >= 1 else "stopped"

    def rules(self, state: State) -> bool:
        """Return whether a state sends conversations by this rollout's rule."""
        return state.rule is not None and state.rule.salt == self.plan.salt


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedDecision:
    """A decision as people read it. `author` is empty where the rollout itself decided."""

    unix_ms: int
    what: str
    author: str
    why: str
    numbers: str


def decisions(rollout: Rollout) -> list[LoggedDecision]:
    """Return all that was decided, in its order."""
    notes = [note for note in rollout.notes if note.kind != POSTED]
    records: list[Move | Noted] = [*notes, *rollout.moves[: rollout.num_moves]]
    found = [
        LoggedDecision(
            unix_ms=record.unix_ms,
            what=record.kind if isinstance(record, Noted) else f"epoch {record.epoch}",
            author="" if isinstance(record, Noted) or record.author == rollout.author else record.author,
            why=record.reason,
            numbers=", ".join(f"{name} {value:g}" for name, value in record.numbers.items()),
        )
        for record in records
    ]
    return sorted(found, key=lambda each: each.unix_ms)


def newest(registry: Registry) -> Rollout | None:
    """Return the rollout that has begun and not ended; else the one started last. Of two started at the same time only
    one begins. None if none was started, or the plan of the last cannot be read."""
    rollouts = [_read(registry, note) for note in reversed(registry.notes) if note.kind == "started"]
    going = (each for each in rollouts if each is not None and each.begun and each.ended is None)
    return next(going, rollouts[0] if rollouts else None)


def foreign_rule(registry: Registry, rollout: Rollout | None, now_unix_ms: float) -> str | None:
    """Return why another rollout than the newest has customers, and the remedy: its plan cannot be read here, or it was
    noted as ended. None if no conversation goes by its rule."""
    state = registry.state_at(now_unix_ms)
    if state.rule is None or (rollout is not None and rollout.ended is None and rollout.rules(state)):
        return None
    author = next((move.author for move in reversed(registry.moves) if move.author.startswith(ROLLOUT_AUTHOR)), "")
    return (
        f"conversations go by a rule of {author or 'a rollout'} that this release cannot read or takes for ended; "
        "type it on a machine of the release that started it, or take its canary off: replyline versions rollback"
    )


def _read(registry: Registry, started: Noted) -> Rollout | None:
    try:
        plan = unpack(started.plan)
    except msgspec.MsgspecError:
        return None
    return Rollout(
        id=started.rollout,
        plan=plan,
        notes=[note for note in registry.notes if note.rollout == started.rollout],
        moves=[move for move in registry.moves if move.epoch >= plan.epoch],
    )


def next_record(
    rollout: Rollout, registry: Registry, evidence: Evidence, health: Health, now_unix_ms: int
) -> Move | Noted | None:
    """Return the record to write now, or None. A move counts only if no other author took its epoch."""
    decision = judge(rollout, registry, evidence, health, now_unix_ms)
    return record_of(decision, rollout, registry, evidence.numbers(), now_unix_ms)


def judge(rollout: Rollout, registry: Registry, evidence: Evidence, health: Health, now_unix_ms: int) -> Decision:
    """Return what the rollout does next, by the state in force at `now_unix_ms`. A move that waits for its time, and a
    failed check of the canary, only freeze it."""
    plan, holds = rollout.plan, registry.state_at(now_unix_ms)
    if registry.blocked is not None:
        return Decision(kind="freeze", reason=registry.blocked)
    unknown = _failed_check(plan, registry)
    if not rollout.begun:
        return _beginning(rollout, unknown)
    if not rollout.rules(holds):
        return _over(rollout, evidence, health)
    if (wrong := _taken_over(rollout, holds)) is not None:
        return Decision(kind="end", reason=wrong)
    if (waiting := registry.waiting(now_unix_ms)) is not None:
        unknown.append(f"epoch {waiting.epoch} by {waiting.author} waits for its time")
    health = replace(health, unknown=[*health.unknown, *unknown])
    health = replace(health, paused=rollout.paused, resumed_unix_ms=rollout.resumed_unix_ms)
    return decide(plan, evidence, holds, standings(plan, rollout.own_moves), health, now_unix_ms)


def _beginning(rollout: Rollout, unknown: Sequence[str]) -> Decision:
    plan = rollout.plan
    if rollout.moves:
        first = rollout.moves[0]
        return Decision(kind="ended", reason=f"not begun: {first.author} was first ({first.reason})")
    if unknown:
        return Decision(kind="ended", reason=f"not begun: {unknown[0]}")
    if rollout.held is not None:
        return Decision(kind="hold", reason=rollout.held)
    return Decision(kind="begin", reason=f"canary {plan.version} gets {plan.steps[0]:.0%}")


def record_of(
    decision: Decision, rollout: Rollout, registry: Registry, numbers: dict[str, float], now_unix_ms: int
) -> Move | Noted | None:
    """Return the record of a decision; None if it is noted already."""
    holds, reason = registry.state_at(now_unix_ms), decision.reason
    if decision.kind == "begin" or decision.kind in MOVES:
        if decision.kind == "begin":
            state = first_state(rollout.plan, holds)
        else:
            state = next_state(rollout.plan, decision, holds, registry.epoch + 1)
        reason += takes_off(registry, now_unix_ms)
        return Move(state=state, author=rollout.author, reason=reason, unix_ms=now_unix_ms, numbers=numbers)
    if decision.kind in _JUDGED and (rollout.paused is not None or not _is_news(decision, rollout, now_unix_ms)):
        return None
    return Noted(rollout=rollout.id, kind=decision.kind, reason=reason, unix_ms=now_unix_ms, numbers=numbers)


def takes_off(registry: Registry, now_unix_ms: float) -> str:
    """Return what a move's reason says of the move that it takes off before its time; "" if none waits."""
    waiting = registry.waiting(now_unix_ms)
    if waiting is None:
        return ""
    return f"; takes off epoch {waiting.epoch} by {waiting.author} ({waiting.reason}), which waited"


def _failed_check(plan: Plan, registry: Registry) -> list[str]:
    """Return why the canary's newest check has failed, as a list of one; empty if it has not."""
    check = registry.check(plan.version)
    failures = check.failures if check is not None else ()
    return [f"version {plan.version} failed its check: {'; '.join(failures)}"] if failures else []


def _is_news(decision: Decision, rollout: Rollout, now_unix_ms: int) -> bool:
    """Return whether a decision differs from the last noted one in more than its numbers. After the first notes the
    gaps between them double, from a minute to an hour: the log keeps every note."""
    notes = rollout.judgements
    known = _NUMBERS.sub("", notes[-1].reason if notes else decision.reason)
    if decision.kind == rollout.judged and known == _NUMBERS.sub("", decision.reason):
        return False
    doubled = min(len(notes) // _FREE_NOTES, _MOST_DOUBLED + 1)
    return not doubled or now_unix_ms - notes[-1].unix_ms >= _GAP_MS * 2 ** (doubled - 1)


def _replaces(later: Move, move: Move) -> bool:
    """Return whether a later move was in force before an earlier one's time came."""
    waits_until = move.state.effective_unix_ms
    return later.epoch > move.epoch and later.unix_ms < waits_until and later.state.effective_unix_ms <= waits_until


def _over(rollout: Rollout, evidence: Evidence, health: Health) -> Decision:
    """Return the decision of a rollout whose rule is not in force by this controller's clock. Until it is known
    that the gateways follow a scheduled move, the canary may have customers: only an alarm takes them off."""
    last = rollout.ending
    if last is None or not last.state.effective_unix_ms or not health.unknown:
        return Decision(kind="ended", reason=_why_ended(rollout))
    if evidence.alarm:
        return Decision(kind="roll back", reason=f"worse than its control, as epoch {last.epoch} came into force")
    return Decision(kind="freeze", reason="; ".join(health.unknown))


def _why_ended(rollout: Rollout) -> str:
    """Return the reason of the move that took the rule away."""
    last = rollout.ending
    if last is None:
        return "its rule is gone"
    return last.reason if last.author == rollout.author else f"{last.author} moved the registry: {last.reason}"


def _taken_over(rollout: Rollout, state: State) -> str | None:
    """Return why the rollout cannot continue though its salt is in force: another author moved what it compares."""
    for alias, version in ((CHAMPION, rollout.plan.champion), ("canary", rollout.plan.version)):
        found = {**state.aliases}.get(alias)  # type: ignore[call-overload]
        if found != version:
            return f"alias {alias} was moved from {version} to {found or 'nothing'}"
    if state.rule is None or state.rule != rollout.own_moves[-1].state.rule:
        return "another author changed its shares"
    share = state.rule.share
    return None if share in rollout.plan.steps else f"its share of {share:.1%} is none of its steps"
