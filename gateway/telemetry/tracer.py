"""Record the traces of a gateway's requests: each starts with its request, is kept or dropped at its end, and is
exported as a whole.

A worker sends its times with its terminal event. If this gateway ended the answer first (by a deadline or a cancel), a
kept trace waits for them for a while; a worker that sends none has died or never read the request.
"""

import asyncio
import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from gateway.request.entry import SEND_SPAN, Adopted, Entry, RequestTrace
from gateway.telemetry.trace_spans import KeptTrace, kept_trace, why_kept
from shared.process.clock import correction_ms, now_unix_ms
from shared.tracing.context import TraceContext, begin_trace
from shared.tracing.export import TraceExporter
from shared.tracing.spans import KeepRules
from shared.tracing.worker import WorkerHalf
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Response
from shared.wire.topics import TopicNames

_RANDOM_BITS: Final = 192
_SPAN_BITS: Final = 64
_WAIT_MS: Final = 5_000.0
_MOST_WAITING: Final = 2_000
_SWEEP_S: Final = 0.5


@dataclass(slots=True, kw_only=True)
class Tracer:
    """The traces in progress. Without an `exporter` nothing is recorded, and a client's trace context is forwarded
    unchanged."""

    rules: KeepRules = field(default_factory=KeepRules)
    exporter: TraceExporter[KeptTrace] | None = None
    gateway_id: str = ""
    topics: TopicNames = field(default_factory=TopicNames)
    _waiting: OrderedDict[str, KeptTrace] = field(default_factory=OrderedDict)

    def start(self, traceparent: str | None) -> RequestTrace:
        """Start a request's trace, under the client's trace context if it sent one."""
        context = begin_trace(traceparent, secrets.randbits(_RANDOM_BITS))
        recorded = self.exporter is not None
        passed_on = None if recorded else traceparent
        traceparent = passed_on or context.traceparent(SEND_SPAN, sampled=recorded)
        return RequestTrace(context=context, traceparent=traceparent, recorded=recorded)

    def adopt(self, packed: bytes | None, now_unix_ms: float) -> RequestTrace | None:
        """Continue the trace of an adopted answer under the first gateway's span; None if no trace is recorded."""
        if self.exporter is None or packed is None:
            return None
        begun = TraceContext.unpacked(packed)
        context = TraceContext(begun.trace_id, secrets.randbits(_SPAN_BITS) or 1, begun.span_id)
        return RequestTrace(context=context, recorded=True, adopted=Adopted(begun, now_unix_ms))

    def note_worker_end(self, entry: Entry | None, done: ReplyDone, now: float) -> None:
        """Store the times in a worker's terminal event, for an open request (`entry`) or one that this gateway ended
        earlier."""
        if self.exporter is None or done.origin != "worker":
            return
        waiting = None if entry is not None else self._waiting.pop(done.request_id, None)
        trace = waiting.trace if waiting is not None else entry.request.trace if entry is not None else None
        if trace is None or trace.heard_unix_ms is not None:
            return
        trace.heard_unix_ms, trace.worker = now, WorkerHalf.from_reply(done, now, clock_ms=correction_ms())
        if waiting is not None:
            self.exporter.put(waiting)

    def finish(self, entry: Entry, response: Response) -> None:
        """Export or drop an ended answer's trace."""
        if self.exporter is None:
            return
        why = why_kept(entry, response, self.rules)
        if why is None:
            return
        to = entry.publication.destination
        facts = kept_trace(
            entry,
            response,
            why,
            gateway_id=self.gateway_id,
            request_topic=self.topics.requests(to.bucket, to.lane),
            reply_topic=self.topics.replies,
        )
        if not facts.awaits_worker:
            self.exporter.put(facts)
            return
        self._waiting[entry.response_id] = facts
        if len(self._waiting) > _MOST_WAITING:
            self._give_up_oldest(self.exporter)

    async def watch(self) -> None:
        """Until cancelled, export traces that have waited too long for a worker's times."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            self.give_up(now_unix_ms() - _WAIT_MS)

    def give_up(self, ended_before_unix_ms: float) -> None:
        """Export the traces of answers that ended before that time, without the worker's half."""
        while self.exporter is not None and self._waiting:
            if next(iter(self._waiting.values())).done_unix_ms >= ended_before_unix_ms:
                return
            self._give_up_oldest(self.exporter)

    async def stop(self) -> None:
        self.give_up(float("inf"))
        if self.exporter is not None:
            await asyncio.to_thread(self.exporter.stop)

    def _give_up_oldest(self, exporter: TraceExporter[KeptTrace]) -> None:
        _, facts = self._waiting.popitem(last=False)
        exporter.put(facts)
