"""What a worker tells of its time to whoever makes the trace; and the trace that it makes itself. Pure."""

from dataclasses import dataclass
from typing import Final

from shared.tracing import conventions as names
from shared.tracing.context import TraceContext, begin_trace
from shared.tracing.keep import KeepRules, Why
from shared.tracing.spans import Attribute, SpanTree, Trace
from shared.tracing.worker import WorkerHalf, add_worker_spans, topic_attributes
from shared.wire.messages import BY_MODEL, ReplyDone, WorkerTimes
from workers.request.job import Job

_UNMET: Final = ("deadline", "infeasible")


def times_of(job: Job, worker_id: str, now_unix_ms: float) -> WorkerTimes:
    """Of an answer that ends now."""
    sequence = job.sequence
    arrived = sequence.arrived_unix_ms
    asked, found = job.kv_unix_ms or (None, None)
    return WorkerTimes(
        worker_id=worker_id,
        arrived_unix_ms=arrived,
        ready_unix_ms=arrived if job.ready_unix_ms is None else job.ready_unix_ms,
        ended_unix_ms=now_unix_ms,
        kv_asked_unix_ms=asked,
        kv_found_unix_ms=found,
        started_unix_ms=sequence.first_step_unix_ms,
        prefilled_unix_ms=tuple(sequence.prefilled_unix_ms),
        first_token_unix_ms=sequence.first_token_unix_ms,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """All that the spans of another service's request are made of; no text, and no name of whoever asked."""

    context: TraceContext
    half: WorkerHalf
    topic: str
    place: tuple[int, int]
    attributes: dict[str, Attribute]
    error: str


def ended(job: Job, done: ReplyDone, half: WorkerHalf, rules: KeepRules, randomness: int) -> tuple[Ended, Why] | None:
    """None where its trace is not kept. Here the clock runs from the record's creation to the answer's end."""
    context = begin_trace(job.order.request.traceparent, randomness)
    times, created = half.times, job.order.created_unix_ms
    deadline = job.order.deadline.later(job.order.clock_ms)  # as the others: by the wall clock
    first = times.ended_unix_ms if job.decided else times.first_token_unix_ms
    in_time = times.ended_unix_ms <= deadline.deadline_unix_ms and (
        first is not None and first <= deadline.first_token_unix_ms
    )
    kept = (job.decided or done.source in BY_MODEL) and done.status != "failed" and done.reason not in _UNMET
    missed = done.status != "cancelled" and not (kept and in_time)
    why = rules.why(
        trace_id=context.trace_id,
        missed=missed,
        total_ms=times.ended_unix_ms - created,
        deadline_ms=deadline.deadline_unix_ms - created,
    )
    if why is None:
        return None
    (topic, partition), offset = job.origins[0]
    error = ("failed" if done.status == "failed" else "deadline") if missed else ""
    attributes: dict[str, Attribute] = {
        names.BUCKET: job.bucket,
        names.SOURCE: done.source,
        names.KEPT: why,
        names.FIRST_DEADLINE_MS: deadline.first_token_unix_ms - created,
        names.DEADLINE_MS: deadline.deadline_unix_ms - created,
    }
    if error:
        attributes[names.ERROR_TYPE] = error
    facts = Ended(
        context=context, half=half, topic=topic, place=(partition, offset), attributes=attributes, error=error
    )
    return facts, why


def spans_of(ended: Ended) -> Trace:
    tree = SpanTree(ended.context)
    topic = topic_attributes(ended.topic, ended.place)
    add_worker_spans(tree, ended.half, parent=None, topic=topic, attributes=ended.attributes, error=ended.error)
    return tree.trace()
