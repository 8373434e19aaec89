"""Every trace with a missed deadline or a slow answer is kept, and a set share of the rest."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.request.entry import Adoption, Entry
from gateway.telemetry.trace_spans import why_kept
from shared.tracing.spans import KeepRules
from shared.wire.outcome import Reason, Response, Source, Status, Timings
from tests.support.builders.gateway import answer
from tests.unit.shared.tracing.test_spans import NOW, entry_of, request_trace

trace_ids = st.integers(1, 2**128 - 1)


def ended_entry(
    status: Status = "completed",
    reason: Reason = "stop",
    source: Source = "model",
    *,
    ttft_ms: float | None = 1.0,
    total_ms: float = 1.0,
) -> tuple[Entry, Response]:
    timings = Timings(ttft_ms=ttft_ms, total_ms=total_ms)
    entry = entry_of(request_trace(), done_unix_ms=NOW + total_ms)
    return entry, answer(status=status, reason=reason, source=source, timings=timings)


@pytest.mark.parametrize(
    ("status", "reason", "source", "ttft_ms", "total_ms"),
    [
        ("completed", "stop", "faq", 1.0, 1.0),
        ("completed", "stop", "busy", 1.0, 1.0),
        ("incomplete", "deadline", "model", 100.0, 15_000.0),
        ("completed", "stop", "model", 3_500.0, 4_000.0),
        ("completed", "stop", "model", 100.0, 15_100.0),
        ("failed", "internal", "model", 100.0, 200.0),
        ("cancelled", "client", "model", 100.0, 15_400.0),
    ],
)
def test_every_missed_promise_is_kept_at_any_ratio(
    status: Status, reason: Reason, source: Source, ttft_ms: float, total_ms: float
) -> None:
    """A fallback, a cut, a late first text, a failure, an end that came too late."""
    entry, response = ended_entry(status, reason, source, ttft_ms=ttft_ms, total_ms=total_ms)
    entry.answer.stood_in = source in ("faq", "busy")
    assert why_kept(entry, response, KeepRules(ratio=0.0)) == "missed"


@pytest.mark.parametrize("source", ["faq", "unsure", "courtesy", "mixed"])
def test_a_faq_entry_chosen_by_a_worker_misses_no_promise(source: Source) -> None:
    entry, response = ended_entry(source=source)
    assert why_kept(entry, response, KeepRules()) is None


@pytest.mark.parametrize(("total_ms", "why"), [(7_499.0, None), (7_500.0, "slow")])
def test_slow_answers_are_kept(total_ms: float, why: str | None) -> None:
    """Slow means half of its own deadline (15 s)."""
    entry, response = ended_entry(ttft_ms=100.0, total_ms=total_ms)
    assert why_kept(entry, response, KeepRules()) == why


def test_a_cancelled_answer_is_neither_kept_nor_missed() -> None:
    entry, response = ended_entry("cancelled", "client", ttft_ms=None, total_ms=50.0)
    assert why_kept(entry, response, KeepRules()) is None


def test_a_trace_begun_by_another_gateway_is_not_kept_here() -> None:
    _, response = ended_entry(source="faq")
    assert why_kept(entry_of(None), response, KeepRules(ratio=1.0)) is None


@pytest.mark.parametrize(("adopted", "why"), [(False, "missed"), (True, None)])
def test_an_adopted_answer_misses_no_first_text(adopted: bool, why: str | None) -> None:
    """Only the gateway that began it knows when the first text came."""
    entry, response = ended_entry(ttft_ms=None, total_ms=9.0)
    entry.adoption = Adoption(latest_unix_ms=0.0) if adopted else None
    assert why_kept(entry, response, KeepRules()) == why


def _sampled(rules: KeepRules, trace_id: int) -> bool:
    return rules.why(trace_id=trace_id, missed=False, total_ms=0, deadline_ms=1_000) == "sampled"


@given(trace_ids, st.floats(0, 1), st.floats(0, 1))
def test_a_trace_kept_at_one_ratio_is_kept_at_every_higher_one(trace_id: int, one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert not _sampled(KeepRules(ratio=low), trace_id) or _sampled(KeepRules(ratio=high), trace_id)
    assert _sampled(KeepRules(ratio=1.0), trace_id)
    assert not _sampled(KeepRules(ratio=0.0), trace_id)


def test_the_ratio_is_the_share_that_is_kept() -> None:
    pick = random.Random(5)
    kept = sum(_sampled(KeepRules(ratio=0.2), pick.getrandbits(128)) for _ in range(10_000))
    assert 1_850 <= kept <= 2_150


@given(trace_ids, st.floats(0, 1))
def test_the_choice_equals_opentelemetrys_sampler(trace_id: int, ratio: float) -> None:
    """So any other service that samples the trace at the same ratio keeps it too."""
    from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

    theirs = TraceIdRatioBased(ratio).should_sample(None, trace_id, "any").decision
    assert _sampled(KeepRules(ratio=ratio), trace_id) == (theirs is Decision.RECORD_AND_SAMPLE)
