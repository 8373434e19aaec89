"""A rollout as the registry's records tell it, and the record that comes next. Pure.

All that a controller knows is in the log: another one that starts in its place writes what this one would have written.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import msgspec

from ops.lifecycle.rollout.evidence import Evidence
from ops.lifecycle.rollout.plan import Plan, unpack
from ops.lifecycle.rollout.policy import MOVES, Decision, Health, decide, first_state, next_state, standings
from shared.versions.registry import Noted, Registry
from shared.versions.state import Move, State
from shared.wire.lanes import CHAMPION

Outcome = Literal["finished", "rolled_back", "stopped"]

_AUTHOR: Final = "rollout "
_JUDGED: Final = ("wait", "hold", "freeze")


@dataclass(frozen=True, slots=True, kw_only=True)
class Rollout:
    """The newest rollout: its notes, and the registry's moves since it began, whoever made them."""

    id: str
    plan: Plan
    notes: Sequence[Noted]
    moves: Sequence[Move]

    @property
    def author(self) -> str:
        """Return the name that its moves bear."""
        return _AUTHOR + self.id

    @property
    def ended(self) -> Noted | None:
        return next((note for note in self.notes if note.kind == "ended"), None)

    @property
    def paused(self) -> str | None:
        """Return who has paused it and why; None where it goes on."""
        last = next((note for note in reversed(self.notes) if note.kind in ("paused", "resumed")), None)
        return last.reason if last is not None and last.kind == "paused" else None

    @property
    def judged(self) -> str:
        """Return the last decision without a move that was noted."""
        return next((note.kind for note in reversed(self.notes) if note.kind in _JUDGED), "wait")

    @property
    def begun(self) -> bool:
        return bool(self.moves) and self.moves[0].author == self.author

    @property
    def num_moves(self) -> int:
        """Return how many of the moves are up to the one that took its rule away."""
        return next((at + 1 for at, move in enumerate(self.moves) if not self.rules(move.state)), len(self.moves))

    @property
    def outcome(self) -> Outcome:
        """Return how it ended, by the move that took its rule away: finished, rolled_back or stopped."""
        last = next((move for move in self.moves if not self.rules(move.state)), None)
        if last is None or last.author != self.author:
            return "stopped"
        if last.state.aliases.get(CHAMPION) == self.plan.version:
            return "finished"
        return "rolled_back" if last.numbers["e"] * self.plan.alpha >= 1 else "stopped"

    def rules(self, state: State) -> bool:
        """Return whether a state sends conversations by this rollout's rule."""
        return state.rule is not None and state.rule.salt == self.plan.salt


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A decision as people read it. `author` is empty where the rollout itself decided."""

    unix_ms: int
    what: str
    author: str
    why: str
    numbers: str


def decisions(rollout: Rollout) -> list[Entry]:
    """Return all that was decided, in its order."""
    records: list[Move | Noted] = [*rollout.notes, *rollout.moves[: rollout.num_moves]]
    found = [
        Entry(
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
    """Return the rollout that goes on, else the one that was started last: of two that are started at once one begins.
    None where there was none, or the plan of the last cannot be read."""
    rollouts = [_read(registry, note) for note in reversed(registry.notes) if note.kind == "started"]
    going = (each for each in rollouts if each is not None and each.begun and each.ended is None)
    return next(going, rollouts[0] if rollouts else None)


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
    """Return what is to be written now; None where nothing is. A move counts only if nobody made another meanwhile."""
    plan, state, numbers = rollout.plan, registry.state, evidence.numbers()

    def note(kind: str, reason: str) -> Noted:
        return Noted(rollout=rollout.id, kind=kind, reason=reason, unix_ms=now_unix_ms, numbers=numbers)

    def move(to: State, reason: str) -> Move:
        return Move(state=to, author=rollout.author, reason=reason, unix_ms=now_unix_ms, numbers=numbers)

    if not rollout.moves:
        return move(first_state(plan, state), f"canary {plan.version} gets {plan.steps[0]:.0%}")
    if not rollout.begun:
        return note("ended", f"not begun: {rollout.moves[0].author} was first ({rollout.moves[0].reason})")
    if not rollout.rules(state):
        return note("ended", _why_ended(rollout))
    decision = _decision(rollout, registry, evidence, health, now_unix_ms)
    if decision.kind in MOVES:
        holds = registry.state_at(now_unix_ms)
        return move(next_state(plan, decision, holds, state.epoch + 1), decision.reason)
    if decision.kind == rollout.judged or health.paused is not None:
        return None
    return note(decision.kind, decision.reason)


def _decision(rollout: Rollout, registry: Registry, evidence: Evidence, health: Health, now_unix_ms: int) -> Decision:
    plan, state = rollout.plan, registry.state
    if (wrong := _taken_over(plan, state)) is not None:
        return Decision(kind="end", reason=wrong)
    if state.effective_unix_ms > now_unix_ms:
        waits = f"epoch {state.epoch} by {registry.moves[-1].author} waits for its time"
        health = replace(health, degraded=[*health.degraded, waits])
    holds = registry.state_at(now_unix_ms)
    return decide(plan, evidence, holds, standings(plan, rollout.moves), health, now_unix_ms)


def _why_ended(rollout: Rollout) -> str:
    """Return the reason of the move that took the rule away."""
    last = next(move for move in rollout.moves if not rollout.rules(move.state))
    return last.reason if last.author == rollout.author else f"{last.author} moved the registry: {last.reason}"


def _taken_over(plan: Plan, state: State) -> str | None:
    """Return why the rollout cannot go on though its rule is in force: somebody moved what it compares."""
    for alias, version in ((CHAMPION, plan.champion), ("canary", plan.version)):
        found = {**state.aliases}.get(alias)  # type: ignore[call-overload]
        if found != version:
            return f"alias {alias} was moved from {version} to {found or 'nothing'}"
    return None
