"""A trace as a tree of spans, made from times that are known at its end. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from shared.tracing.context import TraceContext

Attribute = str | int | float | tuple[str, ...]
Attributes = Mapping[str, Attribute]
Kind = Literal["internal", "server", "producer", "consumer"]


@dataclass(frozen=True, slots=True)
class Process:
    """The process of a span: a gateway or a worker, and which of them."""

    role: Literal["gateway", "worker"]
    instance_id: str


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    unix_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """`parent_id` of the root is that of whoever asked. `links` are spans of the same trace that led to it. `error` is
    OpenTelemetry's status description; empty: none."""

    name: str
    kind: Kind
    process: Process
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
    """Spans as they are added, the root first. None ends before it starts, and each lies within its parent: what two
    machines' clocks say otherwise, or what went on after its parent's end, is cut to it."""

    context: TraceContext
    spans: list[Span] = field(default_factory=list)

    def add(
        self,
        name: str,
        start_unix_ms: float,
        end_unix_ms: float,
        *,
        process: Process,
        parent: Span | None = None,
        kind: Kind = "internal",
        attributes: Attributes | None = None,
        events: Sequence[Event] = (),
        links: Sequence[int] = (),
        error: str = "",
    ) -> Span:
        """Add a span; its place in the order is the number that `TraceContext.child_id` takes."""
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
        """Return the trace by a clock that is so far ahead of the spans' times."""
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
    """`ratio` is of the traces that no other rule keeps. What took half of its own deadline is kept as slow."""

    ratio: float = 0.0

    def why(self, *, trace_id: int, missed: bool, total_ms: float, deadline_ms: float) -> Why | None:
        """Return why the trace of an ended request is kept, as each with a missed deadline is; None if it is not. The
        ratio uses the same 64 bits of the trace's id as OpenTelemetry's `TraceIdRatioBased`: a service that samples at
        the same ratio keeps the same traces."""
        if missed:
            return "missed"
        if total_ms >= deadline_ms / 2:
            return "slow"
        return "sampled" if trace_id % _LOW_BITS < round(self.ratio * _LOW_BITS) else None
