"""Builders of a gateway's inputs: requests, replies, answers, reports of workers, resume points of a cursor."""

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

from msgspec import structs

from gateway.destination.destination import TO_CHAMPION
from gateway.request import endings, replies, resumption
from gateway.request.answer import Answer
from gateway.request.cursor import ResumePoint
from gateway.request.entry import Entry, Item, Publication, Request
from gateway.request.inflight import InflightTable
from gateway.request.outbox import Shown
from gateway.serving.deadlines import DueTimes
from shared.faq.fallback import Fallback
from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket, ReplyDelta, ReplyDone, ResponseCreated
from shared.wire.outcome import ErrorDetail, Grounding, Response, Timings, Usage
from shared.wire.reports import WorkerReport
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


def make_request(number: int = 1, **fields: Any) -> Request:
    given: dict[str, Any] = {
        "response_id": name(number),
        "event_id": f"e{number}",
        "session": SESSION,
        "input": "hi",
        "received_unix_ms": 0.0,
        "deadline": Deadline(first_token_unix_ms=200, deadline_unix_ms=1_000),
    }
    return Request(**(given | fields))


def make_entry(number: int = 1, *, soft: int = 200, hard: int = 1_000, received: float = 0.0, **fields: Any) -> Entry:
    """`fields` are the request's, the answer's, its publication's or the entry's own; `bucket` its destination's."""
    if "bucket" in fields:
        given = fields.get("destination", TO_CHAMPION)
        fields["destination"] = structs.replace(given, bucket=fields.pop("bucket"))
    deadline = Deadline(first_token_unix_ms=soft, deadline_unix_ms=hard)
    request, answer, publication, own = (
        {name: fields[name] for name in [each.name for each in dataclasses.fields(part) if each.init] if name in fields}
        for part in (Request, Answer, Publication, Entry)
    )
    return Entry(
        request=make_request(number, received_unix_ms=received, deadline=deadline, **request),
        answer=Answer(**answer),
        publication=Publication(**publication),
        **({"connection_id": "c"} | own),
    )


class Requests(InflightTable):
    """Requests in flight, each served as the gateway serves it, without its clients."""

    def __init__(self) -> None:
        super().__init__()
        self.due_times = DueTimes(self)

    def accept(self, entry: Entry) -> None:
        super().accept(entry)
        self.due_times.add(entry)

    def reattach(self, entry: Entry, connection_id: str) -> list[Item]:
        items = resumption.reattach(entry, connection_id)
        self.due_times.add(entry)
        return items

    def resume(self, entry: Entry, connection_id: str, told: ResumePoint) -> list[Item]:
        items = resumption.resume(entry, connection_id, told)
        self.due_times.add(entry)
        return items

    def adopt(self, told: ResumePoint, session: SessionKey, connection_id: str, now_unix_ms: float) -> Entry:
        entry = resumption.adopt(told, session, connection_id, now_unix_ms)
        self.accept(entry)
        return entry

    def end_recall(self, entry: Entry) -> None:
        resumption.end_recall(entry)
        self.due_times.add(entry)

    def delta(self, reply: ReplyDelta, now_unix_ms: float) -> list[Item]:
        entry = self.get(reply.request_id)
        return [] if entry is None else replies.add_delta(entry, reply, now_unix_ms)

    def finish(self, entry: Entry, reply: ReplyDone, now_unix_ms: float) -> list[Item]:
        return self._retired(entry, replies.finish(entry, reply, now_unix_ms))

    def fall_back(self, entry: Entry, fallback: Fallback, now_unix_ms: float) -> list[Item]:
        return self._retired(entry, endings.fall_back(entry, fallback, now_unix_ms))

    def cut(self, entry: Entry, now_unix_ms: float) -> list[Item]:
        return self._retired(entry, endings.cut(entry, now_unix_ms))

    def cancel(self, entry: Entry, now_unix_ms: float) -> list[Item]:
        return self._retired(entry, endings.cancel(entry, now_unix_ms))

    def fail(self, entry: Entry, error: ErrorDetail, now_unix_ms: float) -> list[Item]:
        return self._retired(entry, endings.fail(entry, error, now_unix_ms))

    def _retired(self, entry: Entry, items: list[Item]) -> list[Item]:
        if entry.answer.done:
            self.retire(entry)
        return items


def delta(text: str, offset: int = 0, *, attempt: int = 1, request_id: str = R1, revision: str = "") -> ReplyDelta:
    return wire.delta(text, offset, request_id=request_id, attempt=attempt, revision=revision)


def done(text: str, *, attempt: int = 1, request_id: str = R1, **fields: Any) -> ReplyDone:
    given = {"usage": Usage(output_tokens=3), "timings": Timings(queue_ms=1.0, total_ms=99.0), "model": "m"}
    return wire.done(text, request_id, attempt=attempt, **(given | fields))


def answer(response_id: str = "r", text: str = "", **fields: Any) -> Response:
    """Return a complete answer of the model, as its client receives it."""
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
    """Return the report of a worker with four slots, all of them in use."""
    return WorkerReport(
        worker_id=name,
        buckets=buckets,
        partitions={bucket: tuple(partitions) for bucket in buckets if partitions},
        first_token_ms=dict.fromkeys(buckets, first_token_ms),
        service_ms=dict.fromkeys(buckets, service_ms),
        **({"unix_ms": int(NOW), "slots": 4, "running": 4} | fields),
    )


def told(**fields: Any) -> ResumePoint:
    """Return a cursor's entry for one open answer."""
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
    return ResumePoint(**(given | fields))


def publishing(table: Requests, number: int = 1, **fields: Any) -> Entry:
    entry = make_entry(number, **({"bucket": "medium"} | fields))
    table.accept(entry)
    entry.answer.admit(5.0)
    return entry


def waiting(table: Requests, number: int = 1) -> Entry:
    entry = publishing(table, number)
    entry.acknowledge()
    return entry


def created(number: int = 1) -> ResponseCreated:
    return ResponseCreated(response_id=name(number), event_id=f"e{number}", bucket="medium")


def texts(items: list[Item]) -> list[object]:
    """Return the items in short form: the created event, shown text, the terminal event's status and text."""
    brief: list[object] = []
    for item in items:
        if isinstance(item, Shown):
            brief.append((item.offset, item.text))
        elif isinstance(item, Response):
            brief.append((item.status, item.reason, item.output_text))
        else:
            brief.append(item.created)
    return brief
