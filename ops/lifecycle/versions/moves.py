"""The moves that an operator makes: the next state of the registry, or an error with the remedy. Pure.

Every function takes the registry as it was read and returns the whole next state. While a move waits for its time, only
`hold` and `rollback` can be made; a rollback takes the waiting move off.
"""

import re
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from shared.errors import ModelError, SettingsError
from shared.versions.registry import LEAST_OF_AN_ID, Registry
from shared.versions.state import Move, Rung, State
from shared.versions.version import Version
from shared.wire.lanes import CHAMPION, Lane

ROLLOUT_AUTHOR: Final = "rollout "
"""A rollout's controller signs its moves with this and the rollout's name."""
_SPAN: Final = re.compile(r"\+(\d{1,6})([smh])")
_SPAN_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_LANES_OF_A_ROLLOUT: Final = frozenset({"canary", "control"})
_AGAIN_MS: Final = 600_000
_STILL: Final = "; still waits: "


def found(registry: Registry, name: str) -> Version:
    """Return the version of that id, the beginning of one, alias or name. Raises `ModelError`."""
    version = registry.find(name)
    if version is None:
        raise ModelError(
            f"{name}: is no version's name or alias, nor the first {LEAST_OF_AN_ID} or more digits of one id; "
            "see: replyline versions list"
        )
    return version


def allowed(registry: Registry, name: str) -> Version:
    """Return a version that may have traffic. Raises `ModelError` with what to do first."""
    version = found(registry, name)
    why_not = registry.why_not(version.id)
    if why_not is not None:
        raise ModelError(f"{name}: {why_not}")
    return version


def load(registry: Registry, name: str, lane: Lane, now_unix_ms: float) -> State:
    """Return the state in which a lane's workers load one more version. Raises `ModelError`."""
    version = allowed(registry, name)
    state = _next(registry, now_unix_ms)
    return replace(state, loading={**state.loading, lane: version.id})


def unload(registry: Registry, lane: Lane, now_unix_ms: float) -> State:
    """Return the state in which a lane's workers load no version in addition."""
    state = _next(registry, now_unix_ms)
    return replace(state, loading=_without(state.loading, lane))


def close(registry: Registry, lane: Lane, now_unix_ms: float) -> State:
    """Return the state in which a lane has no version: the champion answers what it is asked. Raises `ModelError`."""
    state = _next(registry, now_unix_ms)
    if lane == CHAMPION or (state.rule is not None and lane in _LANES_OF_A_ROLLOUT):
        remedy = "replyline versions use VERSION" if lane == CHAMPION else "replyline rollout stop"
        raise ModelError(f"--lane {lane}: it has customers; use instead: {remedy}")
    if lane not in state.aliases and lane not in state.loading:
        raise ModelError(f"--lane {lane}: it has no version; see: replyline versions list")
    aliases = {alias: each for alias, each in state.aliases.items() if alias != lane}
    return replace(state, aliases=aliases, loading=_without(state.loading, lane))


def use(registry: Registry, name: str, lane: Lane, now_unix_ms: float, at_unix_ms: int = 0) -> State:
    """Return the state in which a lane serves a version, from a moment on. A new champion ends a rollout: its canary
    and rule go, and the champion before is `previous`. Raises `ModelError`."""
    version = allowed(registry, name)
    state = _next(registry, now_unix_ms)
    before = state.aliases.get(lane)
    if before == version.id:
        raise ModelError(f"{name}: version {version.id} is the {lane} already; see: replyline versions list")
    if lane != CHAMPION and state.rule is not None and lane in _LANES_OF_A_ROLLOUT:
        raise ModelError(f"--lane {lane}: a rollout has it; end that first: replyline rollout stop")
    aliases = {**state.aliases, lane: version.id}
    if lane == CHAMPION:
        state = replace(state, rule=None)
        aliases = {alias: each for alias, each in aliases.items() if alias not in _LANES_OF_A_ROLLOUT}
        if before is not None:
            aliases["previous"] = before
    return replace(state, aliases=aliases, loading=_without(state.loading, lane), effective_unix_ms=at_unix_ms)


def rollback(registry: Registry, now_unix_ms: float, *, champion: bool = False, again: bool = False) -> State:
    """Return the state without the canary and without a move that waits for its time. If there is neither, or with
    `champion`, `previous` is the champion again; within ten minutes of another rollback only with `again`. Raises
    `ModelError`."""
    holds, waits = registry.state_at(now_unix_ms), registry.waiting(now_unix_ms)
    aliases = dict(holds.aliases)
    if champion or (waits is None and "canary" not in aliases):
        if CHAMPION not in aliases or "previous" not in aliases:
            raise ModelError("there is no previous version to return to; see: replyline versions log")
        last = _last_rollback(registry, now_unix_ms)
        if last is not None and not again:
            ago = f"{last.author} rolled back {(now_unix_ms - last.unix_ms) / 1_000:.0f} s ago ({last.reason})"
            remedy = f"to return to {aliases['previous']} type it with --again"
            raise ModelError(f"{ago}: the champion is {aliases[CHAMPION]}; {remedy}")
        aliases[CHAMPION], aliases["previous"] = aliases["previous"], aliases[CHAMPION]
    aliases = {alias: each for alias, each in aliases.items() if alias not in _LANES_OF_A_ROLLOUT}
    epoch = registry.epoch + 1
    return replace(holds, epoch=epoch, aliases=aliases, loading={}, rule=None, effective_unix_ms=0)


def pass_over(registry: Registry, unreadable: int, now_unix_ms: float) -> State:
    """Return the state in force, to write behind an unreadable move. Raises `ModelError` if that is not the newest."""
    if registry.blocked is None or unreadable != registry.epoch:
        cause = f"the newest move is epoch {registry.epoch}" if registry.blocked else "this release can read every move"
        raise ModelError(f"--over-epoch {unreadable}: {cause}; see: replyline versions log")
    return in_force(registry, now_unix_ms)


def _last_rollback(registry: Registry, now_unix_ms: float) -> Move | None:
    """Return the newest move of the last ten minutes that took a canary off or made `previous` the champion, unless
    another version has become the champion since."""
    for before, move in zip(reversed(registry.moves[:-1]), reversed(registry.moves), strict=False):
        if now_unix_ms - move.unix_ms > _AGAIN_MS:
            return None
        old, new = before.state.aliases, move.state.aliases
        kept = new.get(CHAMPION) == old.get(CHAMPION)
        swapped = not kept and (new.get(CHAMPION), new.get("previous")) == (old.get("previous"), old.get(CHAMPION))
        if swapped or (kept and "canary" in old and "canary" not in new):
            return move
        if not kept:
            return None
    return None


def hold(registry: Registry, rung: Rung | None, now_unix_ms: float) -> State:
    """Return the state in which the ladder is held at a rung; None: it moves by itself."""
    return replace(in_force(registry, now_unix_ms), rung=rung)


def in_force(registry: Registry, now_unix_ms: float) -> State:
    """Return the state in force, to write with the next epoch. What was decided before loses its epoch."""
    return replace(registry.state_at(now_unix_ms), epoch=registry.epoch + 1, effective_unix_ms=0)


def beside(waiting: Move | None, state: State) -> tuple[State, State | None]:
    """Return the state of a move that lets another one wait for its time, and the interim state; `state`, which
    differs from the one in force in the rung at most, alone if none waits."""
    return (state, None) if waiting is None else (replace(waiting.state, epoch=state.epoch, rung=state.rung), state)


def still_waits(waiting: Move | None) -> str:
    """Return the end of the reason of a move that lets another one wait for its time: that one's reason and author,
    also if further such moves were made between the two; "" if none waits."""
    if waiting is None:
        return ""
    if waiting.interim is not None:
        return _STILL + waiting.reason.rpartition(_STILL)[2]
    return f"{_STILL}{waiting.reason} (by {waiting.author})"


def shadow(registry: Registry, share: float, now_unix_ms: float) -> State:
    """Return the state in which the shadow lane gets a copy of each question of that share of the conversations. Raises
    `ModelError`."""
    return replace(_next(registry, now_unix_ms), shadow_share=share)


def parse_moment(text: str, now_unix_ms: float) -> int:
    """Return the moment that `--at` names, in Unix milliseconds: `+90s`, `+10m`, `+2h`, or a time of ISO 8601, in UTC
    where it says nothing else. Raises `SettingsError` if it is neither, or has passed."""
    span = _SPAN.fullmatch(text)
    if span is not None:
        return int(now_unix_ms) + int(span[1]) * _SPAN_MS[span[2]]
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"--at {text}: write +90s, +10m, +2h, or a time such as 2026-11-26T05:00:00Z") from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    unix_ms = int(moment.timestamp() * 1_000)
    if unix_ms <= now_unix_ms:
        raise SettingsError(f"--at {text}: that time has passed; leave --at out to move at once")
    return unix_ms


def _next(registry: Registry, now_unix_ms: float) -> State:
    """Return the state to change: the one in force, with the next epoch. Raises `ModelError` if a move waits."""
    waits = registry.waiting(now_unix_ms)
    if waits is not None:
        when = datetime.fromtimestamp(waits.state.effective_unix_ms / 1_000, UTC).isoformat(timespec="seconds")
        remedy = "wait for it, or take it off: replyline versions rollback"
        raise ModelError(f"epoch {waits.epoch} by {waits.author} holds from {when} on: {remedy}")
    return replace(registry.state, epoch=registry.epoch + 1, effective_unix_ms=0)


def _without(loading: dict[Lane, str], lane: Lane) -> dict[Lane, str]:
    return {each: revision for each, revision in loading.items() if each != lane}
