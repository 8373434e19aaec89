"""The plan of a load: its questions and their times. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from shared.wire.messages import Limits, ResponseCreate

# A conversation's connection is opened this long before its first request.
OPEN_BEFORE_S: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A request, `at_s` seconds after the start. Plans are in ascending order. Requests of one `session` have their own
    connection; requests without a session share connections."""

    request: ResponseCreate
    deadline_ms: int
    at_s: float = 0.0
    session: str = ""


def plan_of(
    texts: Sequence[str],
    limits: Limits,
    *,
    max_output_tokens: int,
    deadline_ms: int | None = None,
    times: Sequence[float] | None = None,
    alone: bool = False,
) -> list[Planned]:
    """Plan a question for each text. Without a `deadline_ms` the gateway's applies. `alone`: each question has its own
    conversation."""
    return [
        Planned(
            at_s=0.0 if times is None else times[number],
            session=f"q{number}" if alone else "",
            deadline_ms=deadline_ms or limits.deadline_ms,
            request=ResponseCreate(
                event_id=f"bench-{number}",
                input=text,
                max_output_tokens=max_output_tokens,
                temperature=0.0,
                deadline_ms=deadline_ms,
            ),
        )
        for number, text in enumerate(texts)
    ]


def most_at_once(plan: Sequence[Planned]) -> int:
    """Return how many sessions are active at the busiest moment, each from its first request to the deadline of its
    last."""
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
