"""Builders of what a gateway works on: requests, replies, answers, reports of workers, what a cursor tells."""

from collections.abc import Sequence
from typing import Any, Final

from gateway.request.cursor import Told
from gateway.request.entry import Entry
from shared.faq.fallback import Fallback
from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket, ReplyDelta, ReplyDone, WorkerReport
from shared.wire.outcome import Grounding, Response, Timings, Usage
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS
from tests.support.builders import wire

NOW: Final = 1_000_000.0
SESSION: Final = SessionKey("t", "s")
FAQ: Final = Fallback(
    source="faq", text="Within 5 days.", language="en", grounding=(Grounding(id="g", question="q", answer="a"),)
)


def name(number: int = 1) -> str:
    return f"resp_{number:024x}"


R1: Final = name(1)


def make_entry(number: int = 1, *, soft: int = 200, hard: int = 1_000, received: float = 0.0, **fields: Any) -> Entry:
    given: dict[str, Any] = {
        "response_id": name(number),
        "event_id": f"e{number}",
        "session": SESSION,
        "connection_id": "c",
        "input": "hi",
        "received_unix_ms": received,
        "deadline": Deadline(first_token_unix_ms=soft, deadline_unix_ms=hard),
    }
    return Entry(**(given | fields))


def delta(text: str, offset: int = 0, *, attempt: int = 1, request_id: str = R1) -> ReplyDelta:
    return wire.delta(text, offset, request_id=request_id, attempt=attempt)


def done(text: str, *, attempt: int = 1, request_id: str = R1, **fields: Any) -> ReplyDone:
    given = {"usage": Usage(output_tokens=3), "timings": Timings(queue_ms=1.0, total_ms=99.0), "model": "m"}
    return wire.done(text, request_id, attempt=attempt, **(given | fields))


def answer(response_id: str = "r", text: str = "", **fields: Any) -> Response:
    """As its client is told it: whole, by the model."""
    given: dict[str, Any] = {"status": "completed", "reason": "stop", "source": "model"}
    given |= {"usage": Usage(), "timings": Timings()}
    return Response(id=response_id, output_text=text, **(given | fields))


def report(
    name: str = "w1",
    *,
    buckets: tuple[Bucket, ...] = BUCKETS,
    partitions: Sequence[int] = (),
    first_token_ms: float = 100.0,
    service_ms: float = 50.0,
    **fields: Any,
) -> WorkerReport:
    """Of a worker with four slots, none of them free."""
    return WorkerReport(
        worker_id=name,
        buckets=buckets,
        partitions={bucket: tuple(partitions) for bucket in buckets if partitions},
        first_token_ms=dict.fromkeys(buckets, first_token_ms),
        service_ms=dict.fromkeys(buckets, service_ms),
        **({"unix_ms": int(NOW), "slots": 4, "running": 4} | fields),
    )


def told(**fields: Any) -> Told:
    """What a cursor tells of one open answer."""
    given: dict[str, Any] = {
        "digest": bytes(12),
        "event_id": "e",
        "bucket": "short",
        "received_unix_ms": 0,
        "first_token_ms": 200,
        "deadline_ms": 1_000,
        "log": None,
        "place": None,
    }
    return Told(**(given | fields))
