"""Count and log an ended answer."""

from typing import Final, get_args

from shared.process.clock import now_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.tracing.context import trace_id
from shared.wire.messages import ReplyDone
from workers.request.job import Job
from workers.schedule.sequence import Finished, Prefix
from workers.telemetry.outcome import Outcome, outcome_of

log = get_logger()

# create each with 0, since a rate needs a first value
_OUTCOMES: Final = {outcome: metrics.outcomes.labels(outcome) for outcome in get_args(Outcome)}


def count_end(job: Job, finished: Finished, done: ReplyDone, now: float) -> None:
    sequence = job.sequence
    metrics.infer.labels(finished.status, finished.reason).inc()
    _OUTCOMES[outcome_of(finished, now)].inc()
    metrics.infer_duration.observe(max(0.0, now - sequence.arrived_unix_ms) / 1_000)
    if sequence.first_step_unix_ms is not None:
        metrics.queue_time.observe((sequence.first_step_unix_ms - sequence.arrived_unix_ms) / 1_000)
        metrics.odd_requests.labels("late").inc(sequence.first_step_unix_ms > sequence.deadline.first_token_unix_ms)
    if sequence.prefix.restored:
        _count_restored(sequence.prefix)
    log.info(
        "answered",
        request_id=job.id,
        trace_id=None if job.order.request.traceparent is None else trace_id(job.order.request.traceparent),
        status=finished.status,
        reason=finished.reason,
        source=done.source,
        turns_missing=job.turns_missing,
        input_tokens=len(sequence.prompt_ids),
        output_tokens=len(sequence.output_ids),
        slack_ms=round(sequence.deadline.deadline_unix_ms - now_unix_ms()),
    )


def _count_restored(prefix: Prefix) -> None:
    from_redis = min(prefix.loaded, prefix.imported)
    metrics.tokens.labels("slot").inc(prefix.restored - prefix.imported)
    metrics.tokens.labels("host").inc(prefix.imported - from_redis)
    metrics.tokens.labels("redis").inc(from_redis)
