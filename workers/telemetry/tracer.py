"""A worker's part in the traces of its requests.

Of a gateway's request it tells its times with the answer's end, and the gateway makes the trace. Nobody listens at the
end of another service's: its trace is made here.
"""

import asyncio
import secrets
from dataclasses import dataclass, field
from typing import Final

import msgspec

from shared.tracing.context import is_sampled
from shared.tracing.export import TraceExporter
from shared.tracing.keep import KeepRules
from shared.tracing.worker import WorkerHalf, shifted
from shared.wire.messages import ReplyDone
from workers.request.job import Job
from workers.telemetry.trace_spans import Ended, ended, times_of

_RANDOM_BITS: Final = 192


@dataclass(slots=True, kw_only=True)
class Tracer:
    """Without an `exporter` no trace is made here."""

    worker_id: str = ""
    gateways_topic: str = ""
    rules: KeepRules = field(default_factory=KeepRules)
    exporter: TraceExporter[Ended] | None = None

    def ended(self, job: Job, done: ReplyDone, now_unix_ms: float) -> ReplyDone:
        """The end as it is told: with this worker's times, where the request's trace is recorded."""
        own = self.exporter is not None and job.order.reply_topic != self.gateways_topic
        if not own and not is_sampled(job.order.request.traceparent):
            return done
        clock_ms = job.order.clock_ms
        times = shifted(times_of(job, self.worker_id, now_unix_ms), clock_ms)
        timed = msgspec.structs.replace(done, times=times)
        if own:
            self._keep(job, timed, now_unix_ms + clock_ms)
        return timed

    def _keep(self, job: Job, done: ReplyDone, now_unix_ms: float) -> None:
        half = WorkerHalf.of(done, now_unix_ms)
        assert self.exporter is not None, "asked before"
        assert half is not None, "its times were just added"
        kept = ended(job, done, half, self.rules, secrets.randbits(_RANDOM_BITS))
        if kept is not None:
            facts, _ = kept
            self.exporter.put(facts)

    async def stop(self) -> None:
        if self.exporter is not None:
            await asyncio.to_thread(self.exporter.stop)
