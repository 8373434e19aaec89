"""W3C trace context, carried through and never interpreted (https://www.w3.org/TR/trace-context/)."""


def make_traceparent(randomness: int) -> str:
    """A sampled version-00 traceparent from 192 random bits."""
    trace_id = (randomness >> 64) & (2**128 - 1) or 1
    span_id = randomness & (2**64 - 1) or 1
    return f"00-{trace_id:032x}-{span_id:016x}-01"


def trace_id(traceparent: str) -> str:
    return traceparent[3:35]
