"""Decide which lane a request takes, and which version it names. Pure."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from shared.versions.state import State
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.session_key import SessionKey


@dataclass(frozen=True, slots=True)
class Route:
    """`revision` is the version of the lane by the registry's state of `epoch`; None where the registry is empty."""

    lane: Lane = CHAMPION
    revision: str | None = None
    epoch: int | None = None


TO_CHAMPION: Final = Route()


def route(state: State, session: SessionKey, is_live: Callable[[Lane], bool]) -> Route:
    """Return the route of a conversation's request: the champion's where the rule's lane has no live worker."""
    lane = state.lane(session)
    return route_in(state, lane if lane == CHAMPION or is_live(lane) else CHAMPION)


def route_in(state: State, lane: Lane) -> Route:
    """Return the way through a lane. The control's workers serve the champion's version, unless it has an alias."""
    aliases = state.aliases
    revision = aliases.get(lane) or (aliases.get(CHAMPION) if lane == "control" else None)
    return Route(lane, revision, state.epoch or None)
