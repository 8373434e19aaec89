"""Decide which traces are kept: when a request has ended and everything is known of it. Pure."""

from dataclasses import dataclass
from typing import Final, Literal

Why = Literal["missed", "slow", "sampled"]

_LOW_BITS: Final = 2**64


@dataclass(frozen=True, slots=True)
class KeepRules:
    """`ratio` is of the traces that no other rule keeps. What took half of its own deadline is kept as slow."""

    ratio: float = 0.0

    def why(self, *, trace_id: int, missed: bool, total_ms: float, deadline_ms: float) -> Why | None:
        """Why the trace of an ended request is kept; None where it is not. Each missed deadline is.

        The ratio goes by the trace's id, by the same 64 bits as OpenTelemetry's `TraceIdRatioBased`: whoever samples at
        as much keeps the same traces.
        """
        if missed:
            return "missed"
        if total_ms >= deadline_ms / 2:
            return "slow"
        return "sampled" if trace_id % _LOW_BITS < round(self.ratio * _LOW_BITS) else None
