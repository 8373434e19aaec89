"""Send spans with OpenTelemetry's exporter: OTLP over HTTP in protobuf. Imported only if tracing is on (an optional
extra).
"""

from collections.abc import Sequence
from importlib.metadata import version
from typing import Final

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from shared.settings.telemetry import TracingSettings
from shared.tracing import conventions as names
from shared.tracing.spans import Span, SpanProcess, Trace

_KINDS: Final = {
    "internal": SpanKind.INTERNAL,
    "server": SpanKind.SERVER,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_NS_PER_MS: Final = 1_000_000
_NUM_RESOURCES: Final = 1_000
_TIMEOUT_S: Final = 5.0  # for one batch, including retries


class OtlpSender:
    """Sends traces; each span has its process as resource."""

    def __init__(self, settings: TracingSettings) -> None:
        self._version = version("replyline")
        self._exporter = OTLPSpanExporter(endpoint=settings.endpoint, timeout=_TIMEOUT_S)
        self._scope = InstrumentationScope("replyline", self._version, names.SCHEMA_URL)
        self._resources: dict[SpanProcess, Resource] = {}

    def __call__(self, traces: Sequence[Trace]) -> bool:
        """Send spans and return whether the store accepted them. Retries within the timeout."""
        spans = [self._readable(trace.trace_id, span) for trace in traces for span in trace.spans]
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def _readable(self, trace_id: int, span: Span) -> ReadableSpan:
        return ReadableSpan(
            name=span.name,
            context=_context(trace_id, span.span_id),
            parent=None if span.parent_id is None else _context(trace_id, span.parent_id),
            resource=self._resource(span.process),
            attributes=span.attributes,
            events=[Event(event.name, timestamp=_ns(event.unix_ms)) for event in span.events],
            links=[Link(_context(trace_id, link)) for link in span.links],
            kind=_KINDS[span.kind],
            status=Status(StatusCode.ERROR, span.error) if span.error else Status(StatusCode.UNSET),
            start_time=_ns(span.start_unix_ms),
            end_time=_ns(span.end_unix_ms),
            instrumentation_scope=self._scope,
        )

    def _resource(self, process: SpanProcess) -> Resource:
        if process not in self._resources:
            if len(self._resources) >= _NUM_RESOURCES:  # bounded, since workers come and go over weeks
                self._resources.clear()
            self._resources[process] = Resource(
                {
                    names.SERVICE_NAME: f"replyline-{process.role}",
                    names.SERVICE_VERSION: self._version,
                    names.SERVICE_INSTANCE_ID: process.instance_id,
                },
                names.SCHEMA_URL,
            )
        return self._resources[process]


def _context(trace_id: int, span_id: int) -> SpanContext:
    return SpanContext(trace_id, span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED))


def _ns(unix_ms: float) -> int:
    return round(unix_ms * _NS_PER_MS)
