"""Trace context is carried as W3C wants it."""

import msgspec
from hypothesis import example, given
from hypothesis import strategies as st

from shared.messages import Traceparent
from shared.tracing import make_traceparent, trace_id


@given(st.integers(0, 2**192 - 1))
@example(0)
@example(2**64)
@example(2**64 - 1)
@example(2**192 - 1)
def test_every_random_number_makes_a_valid_traceparent(randomness: int) -> None:
    traceparent = make_traceparent(randomness)
    assert msgspec.convert(traceparent, Traceparent) == traceparent
    version, trace, span, flags = traceparent.split("-")
    assert (version, flags) == ("00", "01")
    assert int(trace, 16) > 0, "all zeros are invalid"
    assert int(span, 16) > 0, "all zeros are invalid"
    assert trace_id(traceparent) == trace


def test_different_randomness_gives_different_traces() -> None:
    assert make_traceparent(5 << 64 | 7) == f"00-{5:032x}-{7:016x}-01"
