"""W3C trace context: which trace a request belongs to (https://www.w3.org/TR/trace-context/). Pure."""

from dataclasses import dataclass
from typing import Final

_SPAN_IDS: Final = 2**64 - 1  # 1 … 2^64 - 1: zero is not a valid id
_APART: Final = 0x9E3779B97F4A7C15
_SAMPLED: Final = 1
_TRACE_BYTES: Final = 16
_SPAN_BYTES: Final = 8
PACKED_BYTES: Final = _TRACE_BYTES + _SPAN_BYTES
_INVALID_VERSION: Final = "ff"


@dataclass(frozen=True, slots=True)
class TraceContext:
    """A request's position in its trace.

    Attributes:
        span_id: the span of the process that created this object.
        parent_id: the client's span; None if it sent none.
    """

    trace_id: int
    span_id: int
    parent_id: int | None = None

    def child_id(self, number: int) -> int:
        """Return the id of a child span: always the same for a number, different for each. 0 is this span itself."""
        return (self.span_id - 1 + number * _APART) % _SPAN_IDS + 1

    def packed(self) -> bytes:
        """Return trace and span id in 24 bytes, for `unpacked`."""
        return self.trace_id.to_bytes(_TRACE_BYTES, "big") + self.span_id.to_bytes(_SPAN_BYTES, "big")

    @classmethod
    def unpacked(cls, data: bytes) -> "TraceContext":
        return cls(int.from_bytes(data[:_TRACE_BYTES], "big"), int.from_bytes(data[_TRACE_BYTES:], "big"))

    def traceparent(self, number: int, *, sampled: bool = True) -> str:
        """Return the header for a process that works under that span. `sampled`: this trace is recorded."""
        return f"00-{self.trace_id:032x}-{self.child_id(number):016x}-{_SAMPLED if sampled else 0:02x}"


def begin_trace(traceparent: str | None, randomness: int) -> TraceContext:
    """Continue the client's trace, or start one from 192 random bits if its header is missing or invalid in W3C's
    sense."""
    trace_id, span_id = (randomness >> 64) % 2**128 or 1, randomness % 2**64 or 1
    if traceparent is None:
        return TraceContext(trace_id, span_id)
    version, asked_trace, asked_span, _ = traceparent.split("-")
    parent_id = int(asked_span, 16)
    if version == _INVALID_VERSION or not int(asked_trace, 16) or not parent_id:
        return TraceContext(trace_id, span_id)
    return TraceContext(int(asked_trace, 16), span_id, parent_id)


def trace_id(traceparent: str) -> str:
    return traceparent[3:35]


def is_sampled(traceparent: str | None) -> bool:
    """Return whether the sender records its trace."""
    return traceparent is not None and bool(int(traceparent[-2:], 16) & _SAMPLED)
