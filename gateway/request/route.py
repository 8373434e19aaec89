"""Decide which lane a request takes, and which version it names. Pure."""

from collections.abc import Callable, Iterable
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


def route(state: State, session: SessionKey, classes: Iterable[str], is_live: Callable[[Lane], bool]) -> Route:
    """Return the way of a conversation's request of these classes. A lane without a live worker is not taken: the
    champion's is."""
    lane = state.lane(session, classes)
    return route_in(state, lane if lane == CHAMPION or is_live(lane) else CHAMPION)


def route_in(state: State, lane: Lane) -> Route:
    """Return the way through a lane. The control's workers serve the champion's version, unless it has an alias."""
    aliases = state.aliases
    revision = aliases.get(lane) or (aliases.get(CHAMPION) if lane == "control" else None)
    return Route(lane, revision, state.epoch or None)
