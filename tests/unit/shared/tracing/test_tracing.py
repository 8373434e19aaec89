"""Trace context is passed on in the W3C format."""

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from shared.tracing.context import begin_trace, is_sampled, trace_id
from shared.wire.fields import Traceparent


@given(st.integers(0, 2**192 - 1))
@example(0)
@example(2**64)
@example(2**64 - 1)
@example(2**192 - 1)
def test_every_random_number_makes_a_valid_traceparent(randomness: int) -> None:
    traceparent = begin_trace(None, randomness).traceparent(0)
    assert msgspec.convert(traceparent, Traceparent) == traceparent
    version, trace, span, flags = traceparent.split("-")
    assert (version, flags) == ("00", "01")
    assert int(trace, 16) > 0, "all zeros are invalid"
    assert int(span, 16) > 0, "all zeros are invalid"
    assert trace_id(traceparent) == trace


def test_different_randomness_gives_different_traces() -> None:
    assert begin_trace(None, 5 << 64 | 7).traceparent(0) == f"00-{5:032x}-{7:016x}-01"


TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_a_clients_trace_is_continued() -> None:
    context = begin_trace(TRACEPARENT, 5 << 64 | 7)
    assert (context.trace_id, context.parent_id) == (0x0AF7651916CD43DD8448EB211C80319C, 0xB7AD6B7169203331)
    assert context.span_id == 7


@pytest.mark.parametrize(
    "traceparent",
    [
        None,
        f"00-{'0' * 32}-b7ad6b7169203331-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        "ff" + TRACEPARENT[2:],
    ],
)
def test_an_invalid_trace_context_starts_another_trace(traceparent: str | None) -> None:
    context = begin_trace(traceparent, 5 << 64 | 7)
    assert (context.trace_id, context.span_id, context.parent_id) == (5, 7, None)


@given(st.integers(0, 2**192 - 1))
@example(0)
@example(2**64 - 1)
def test_the_ids_under_a_span_are_valid_and_differ(randomness: int) -> None:
    context = begin_trace(None, randomness)
    ids = [context.child_id(number) for number in range(200)]
    assert len(set(ids)) == 200
    assert all(0 < span_id < 2**64 for span_id in ids)
    assert ids[0] == context.span_id
    assert msgspec.convert(context.traceparent(3), Traceparent).split("-")[2] == f"{ids[3]:016x}"


@pytest.mark.parametrize(("flags", "recorded"), [("00", False), ("01", True), ("03", True), ("02", False)])
def test_the_last_flag_says_whether_the_trace_is_recorded(flags: str, recorded: bool) -> None:
    assert is_sampled(TRACEPARENT[:-2] + flags) is recorded
    assert not is_sampled(None)
    assert is_sampled(begin_trace(None, 9).traceparent(1, sampled=recorded)) is recorded
