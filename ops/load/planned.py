"""What an open loop of conversations is to ask, and when. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.wire.messages import Bucket, ResponseCreate

# A conversation's connection is opened so long before its first request.
OPEN_BEFORE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A request, `at_s` from the start. Plans ascend by it."""

    at_s: float
    session: str
    bucket: Bucket
    deadline_ms: int
    request: ResponseCreate


def most_at_once(plan: Sequence[Planned]) -> int:
    """Sessions between their first request and their last one's deadline, at the busiest moment."""
    spans: dict[str, tuple[float, float]] = {}
    for one in plan:
        first, last = spans.get(one.session, (one.at_s - OPEN_BEFORE_S, 0.0))
        spans[one.session] = first, max(last, one.at_s + one.deadline_ms / 1_000)
    edges = sorted((at, step) for first, last in spans.values() for at, step in ((first, 1), (last, -1)))
    most = current = 0
    for _, step in edges:
        current += step
        most = max(most, current)
    return most
