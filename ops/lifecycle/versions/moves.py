"""The moves that an operator makes: the next state of the registry, or why there is none. Pure.

Every function takes the registry as it was read and returns the whole next state. A move that still waits for its time
stands in the way of others; a rollback takes it off.
"""

import re
from datetime import UTC, datetime
from typing import Final

from msgspec.structs import replace

from shared.errors import ModelError, SettingsError
from shared.versions.registry import Registry
from shared.versions.state import Rung, State
from shared.versions.version import Version
from shared.wire.lanes import CHAMPION, Lane

_SPAN: Final = re.compile(r"\+(\d{1,6})([smh])")
_SPAN_MS: Final = {"s": 1_000, "m": 60_000, "h": 3_600_000}
_LANES_OF_A_ROLLOUT: Final = frozenset({"canary", "control"})


def found(registry: Registry, name: str) -> Version:
    """Return the version of that id, the beginning of one, alias or name. Raises `ModelError`."""
    version = registry.find(name)
    if version is None:
        raise ModelError(f"{name}: no such version, or the beginning of several ids; see: replyline versions list")
    return version


def allowed(registry: Registry, name: str) -> Version:
    """Return a version that may have traffic. Raises `ModelError` with what to do first."""
    version = found(registry, name)
    why_not = registry.why_not(version.id)
    if why_not is not None:
        raise ModelError(f"{name}: {why_not}")
    return version


def load(registry: Registry, name: str, lane: Lane, now_unix_ms: float) -> State:
    """Return the state in which a lane's workers load a version beside the one they serve. Raises `ModelError`."""
    version = allowed(registry, name)
    state = _next(registry, now_unix_ms)
    return replace(state, loading={**state.loading, lane: version.id})


def unload(registry: Registry, lane: Lane, now_unix_ms: float) -> State:
    """Return the state in which a lane's workers load nothing beside."""
    state = _next(registry, now_unix_ms)
    return replace(state, loading=_without(state.loading, lane))


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


def rollback(registry: Registry, now_unix_ms: float) -> State:
    """Return the state before a move that still waits for its time; where none waits, that in which `previous` is the
    champion again. Either way the canary is off. Raises `ModelError` where nothing can be taken back."""
    holds, waits = registry.state_at(now_unix_ms), registry.waiting(now_unix_ms)
    aliases = dict(holds.aliases)
    champion, previous = aliases.get("champion"), aliases.get("previous")
    if waits is None and champion is not None and previous is not None:
        aliases["champion"], aliases["previous"] = previous, champion
    elif waits is None and "canary" not in aliases:
        raise ModelError("there is no previous version to return to; see: replyline versions log")
    aliases = {alias: each for alias, each in aliases.items() if alias not in _LANES_OF_A_ROLLOUT}
    epoch = registry.state.epoch + 1
    return replace(holds, epoch=epoch, aliases=aliases, loading={}, rule=None, effective_unix_ms=0)


def hold(registry: Registry, rung: Rung | None, now_unix_ms: float) -> State:
    """Return the state in which the ladder is held at a rung; None: it moves by itself. Raises `ModelError`."""
    return replace(_next(registry, now_unix_ms), rung=rung)


def shadow(registry: Registry, share: float, now_unix_ms: float) -> State:
    """Return the state in which the shadow lane is asked what such a share of the conversations was. Raises
    `ModelError`."""
    return replace(_next(registry, now_unix_ms), shadow_share=share)


def parse_moment(text: str, now_unix_ms: float) -> int:
    """Return the moment that `--at` names, in Unix milliseconds: `+90s`, `+10m`, `+2h`, or a time of ISO 8601, in UTC
    where it says nothing else. Raises `SettingsError` where it is neither, or has passed."""
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
    """Return the state to change: the one that holds, of the next epoch."""
    waits = registry.waiting(now_unix_ms)
    if waits is not None:
        when = datetime.fromtimestamp(waits.state.effective_unix_ms / 1_000, UTC).isoformat(timespec="seconds")
        remedy = "wait for it, or take it off: replyline versions rollback"
        raise ModelError(f"epoch {waits.epoch} by {waits.author} holds from {when} on: {remedy}")
    return replace(registry.state, epoch=registry.state.epoch + 1, effective_unix_ms=0)


def _without(loading: dict[Lane, str], lane: Lane) -> dict[Lane, str]:
    return {each: revision for each, revision in loading.items() if each != lane}
