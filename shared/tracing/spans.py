"""A trace as a tree of spans, built at its end from recorded times. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from shared.tracing.context import TraceContext

Attribute = str | int | float | tuple[str, ...]
Attributes = Mapping[str, Attribute]
Kind = Literal["internal", "server", "producer", "consumer"]


@dataclass(frozen=True, slots=True)
class SpanProcess:
    """The process of a span: gateway or worker, and its id."""

    role: Literal["gateway", "worker"]
    instance_id: str


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    unix_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A span. The root's `parent_id` is the client's span. `links` are spans of the same trace that led to this one.
    `error` is OpenTelemetry's status description; empty without an error.
    """

    name: str
    kind: Kind
    process: SpanProcess
    span_id: int
    parent_id: int | None
    start_unix_ms: float
    end_unix_ms: float
    attributes: Attributes
    events: tuple[Event, ...] = ()
    links: tuple[int, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class Trace:
    trace_id: int
    spans: Sequence[Span]


@dataclass(slots=True)
class SpanTree:
    """Spans in the order of their creation, the root first.

    No span ends before it starts, and each lies within its parent: times that do not, because of two machines' clocks
    or work after the parent's end, are cut.
    """

    context: TraceContext
    spans: list[Span] = field(default_factory=list)

    def add(
        self,
        name: str,
        start_unix_ms: float,
        end_unix_ms: float,
        *,
        process: SpanProcess,
        parent: Span | None = None,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        events: Sequence[Event] = (),
        links: Sequence[int] = (),
        error: str = "",
    ) -> Span:
        """Add a span. Its index is the number for `TraceContext.child_id`."""
        start, end = start_unix_ms, max(start_unix_ms, end_unix_ms)
        if parent is not None:
            start, end = _within(parent, start), _within(parent, end)
        span = Span(
            name=name,
            kind=kind,
            process=process,
            span_id=self.context.child_id(len(self.spans)),
            parent_id=self.context.parent_id if parent is None else parent.span_id,
            start_unix_ms=start,
            end_unix_ms=end,
            attributes=attributes or {},
            events=tuple(Event(event.name, min(max(event.unix_ms, start), end)) for event in events),
            links=tuple(links),
            error=error,
        )
        self.spans.append(span)
        return span

    def trace(self, *, clock_ms: int = 0) -> Trace:
        """Return the trace, with times on a clock that is `clock_ms` ahead."""
        spans = [_later(span, clock_ms) for span in self.spans] if clock_ms else self.spans
        return Trace(self.context.trace_id, spans)


def _later(span: Span, ms: int) -> Span:
    return replace(
        span,
        start_unix_ms=span.start_unix_ms + ms,
        end_unix_ms=span.end_unix_ms + ms,
        events=tuple(Event(event.name, event.unix_ms + ms) for event in span.events),
    )


def _within(parent: Span, unix_ms: float) -> float:
    return min(max(unix_ms, parent.start_unix_ms), parent.end_unix_ms)


Why = Literal["missed", "slow", "sampled"]

_LOW_BITS: Final = 2**64


@dataclass(frozen=True, slots=True)
class KeepRules:
    """Which traces are exported. `ratio` is the share of those that no other rule selects. A request that took half of
    its own deadline is slow.
    """

    ratio: float = 0.0

    def why(self, *, trace_id: int, missed: bool, total_ms: float, deadline_ms: float) -> Why | None:
        """Return why the trace of an ended request is exported; None if it is not. A missed deadline always is.

        The ratio uses the same 64 bits of the trace id as OpenTelemetry's `TraceIdRatioBased`, so services with the
        same ratio select the same traces.
        """
        if missed:
            return "missed"
        if total_ms >= deadline_ms / 2:
            return "slow"
        return "sampled" if trace_id % _LOW_BITS < round(self.ratio * _LOW_BITS) else None
