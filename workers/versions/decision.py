"""Decide what a worker loads, serves and closes next. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from shared.versions.state import State
from shared.wire.fields import Revision
from shared.wire.lanes import Lane


@dataclass(frozen=True, slots=True)
class Load:
    """Load a version in addition to the others."""

    revision: Revision


@dataclass(frozen=True, slots=True)
class Abandon:
    """Stop loading a version that the registry no longer asks for."""

    revision: Revision


@dataclass(frozen=True, slots=True)
class Serve:
    """Serve all later requests by a loaded version."""

    revision: Revision


@dataclass(frozen=True, slots=True)
class Close:
    """Give back the memory of a version."""

    revision: Revision


Action = Load | Abandon | Serve | Close


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """`target` is to serve, those in `beside` are to be loaded too. `idle` are loaded versions that neither serve nor
    have requests under way, with the time since which they do not serve; they are kept for `kept_ms`, and the
    `previous` one until memory is short. `retry` are refused versions, with the time at which they may be tried again.
    `cramped`: what is to be loaded lacks the memory that idle ones hold."""

    target: Revision
    beside: tuple[Revision, ...] = ()
    serving: Revision
    loaded: frozenset[Revision]
    idle: Mapping[Revision, float]
    loading: Revision | None = None
    retry: Mapping[Revision, float]
    kept_ms: float
    previous: Revision | None = None
    cramped: bool = False


def next_action(now: Situation, now_unix_ms: float) -> Action | None:
    """Return what is to be done now; None where nothing is."""
    if now.target in now.loaded and now.target != now.serving:
        return Serve(now.target)
    wanted = (now.target, *now.beside)
    if now.loading is not None and now.loading not in wanted:
        return Abandon(now.loading)
    for revision in sorted(now.idle, key=lambda revision: revision == now.previous):
        is_over = revision != now.previous and now_unix_ms - now.idle[revision] >= now.kept_ms
        if revision not in wanted and (now.cramped or is_over):
            return Close(revision)
    if now.loading is None:
        for revision in wanted:
            if revision not in now.loaded and now.retry.get(revision, now_unix_ms) <= now_unix_ms:
                return Load(revision)
    return None


def wanted_beside(in_force: State, latest: State, lane: Lane) -> tuple[Revision, ...]:
    """Return the versions that a lane's workers are to have loaded besides the one they serve: those that a state says
    they load, and the one that a state to come has them serve."""
    named = (in_force.loading.get(lane), latest.revision(lane), latest.loading.get(lane))
    return tuple(dict.fromkeys(revision for revision in named if revision is not None))
