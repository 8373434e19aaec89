"""Add a worker's times to its terminal events; the gateway builds the trace from them."""

from dataclasses import dataclass

import msgspec

from shared.tracing.context import is_sampled
from shared.tracing.worker import shifted
from shared.wire.messages import ReplyDone
from shared.wire.outcome import WorkerTimes
from workers.request.job import Job


@dataclass(slots=True, kw_only=True)
class Tracer:
    worker_id: str = ""

    def traced(self, job: Job, done: ReplyDone, now_unix_ms: float) -> ReplyDone:
        """Return the terminal event, with this worker's times if the request's trace is recorded."""
        if not is_sampled(job.order.request.traceparent):
            return done
        times = shifted(times_of(job, self.worker_id, now_unix_ms), job.order.clock_ms)
        return msgspec.structs.replace(done, times=times)


def times_of(job: Job, worker_id: str, now_unix_ms: float) -> WorkerTimes:
    """Return the times of an answer that ends now."""
    sequence = job.sequence
    arrived = sequence.arrived_unix_ms
    asked, found = job.kv_unix_ms or (None, None)
    return WorkerTimes(
        worker_id=worker_id,
        arrived_unix_ms=arrived,
        ready_unix_ms=arrived if job.ready_unix_ms is None else job.ready_unix_ms,
        ended_unix_ms=now_unix_ms,
        turns_missing=job.turns_missing,
        kv_asked_unix_ms=asked,
        kv_found_unix_ms=found,
        started_unix_ms=sequence.first_step_unix_ms,
        prefilled_unix_ms=tuple(sequence.prefilled_unix_ms),
        first_token_unix_ms=sequence.first_token_unix_ms,
    )
