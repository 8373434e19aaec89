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
    """Free the memory of a version."""

    revision: Revision


Action = Load | Abandon | Serve | Close


@dataclass(frozen=True, slots=True, kw_only=True)
class Situation:
    """What `next_action` decides from.

    Attributes:
        target: the version that should serve.
        beside: other versions that should also be loaded.
        serving: the version that serves.
        loaded: the loaded versions.
        idle: loaded versions that neither serve nor have open requests, with the time since which they do not serve.
        loading: the version that is being loaded.
        retry: refused versions, with the time at which they may be tried again.
        kept_ms: how long an idle version is kept.
        previous: the version that is kept longer, until memory is short.
        cramped: the version to load lacks memory that idle versions use.
    """

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
    """Return the next action; None if nothing has to be done."""
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
    """Return the versions that a lane's workers should have loaded in addition to the one that serves. They are those
    that a state names as loading, and the one that the latest state will have serve."""
    named = (in_force.loading.get(lane), latest.revision(lane), latest.loading.get(lane))
    return tuple(dict.fromkeys(revision for revision in named if revision is not None))
