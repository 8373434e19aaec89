"""Metrics of an answer: whether its promise was kept, and how a step's time was spent."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from prometheus_client import REGISTRY

from gateway.destination.lanes import Demand
from gateway.request.entry import Adoption
from gateway.telemetry.answer_metrics import count_answer, count_judged
from gateway.telemetry.attainment import Attainment, attainment, is_late
from shared.wire.deadline import Deadline
from shared.wire.outcome import Response, Timings
from tests.support.builders.gateway import answer, make_entry
from tests.unit.workers.serving.test_worker import Bench
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.schedule.costs import CostModel
from workers.schedule.scheduler import EngineStep
from workers.schedule.speculation.speculation import SOURCES
from workers.serving.engine_step import StepResult, count_step

PROMISE = Deadline(first_token_unix_ms=1_200, deadline_unix_ms=2_000)
RECEIVED = 1_000.0


def response(ttft_ms: float | None = 100.0, total_ms: float | None = 500.0, **changed: Any) -> Response:
    return answer(timings=Timings(ttft_ms=ttft_ms, total_ms=total_ms), **changed)


@pytest.mark.parametrize(
    ("told", "stood_in", "kept"),
    [
        (response(), False, (True, True)),
        (response(200.0, 1_000.0), False, (True, True)),
        (response(200.1, 1_000.1), False, (False, False)),
        (response(reason="max_output_tokens", status="incomplete"), False, (True, True)),
        (response(100.0, 1_000.0, reason="deadline", status="incomplete"), False, (True, False)),
        (response(None), False, (False, True)),
        *((response(source=source), False, (True, True)) for source in ("mixed", "faq", "unsure")),
        (response(status="failed", reason="internal"), False, (False, False)),
        (response(status="cancelled", reason="client"), False, None),
        (response(source="handoff"), False, None),
        (response(None, None), False, None),
        *((response(source=source), True, (False, False)) for source in ("faq", "busy")),
    ],
)
def test_a_promise_is_kept_by_a_workers_answer_in_time_and_not_by_a_fallback(
    told: Response, stood_in: bool, kept: tuple[bool, bool] | None
) -> None:
    expected = None if kept is None else Attainment(first_token=kept[0], whole=kept[1])
    assert attainment(told, PROMISE, RECEIVED, stood_in=stood_in) == expected


@pytest.mark.parametrize(("after", "is_judged"), [(0.5, False), (0.94, False), (0.95, True), (1.0, True)])
@pytest.mark.parametrize("sooner", [{"first_token_unix_ms": 1_100}, {"deadline_unix_ms": 1_960}], ids=str)
def test_an_answer_slower_than_the_shops_promise_misses_it_even_with_an_earlier_client_deadline(
    sooner: dict[str, int], after: float, is_judged: bool
) -> None:
    """It is a fallback at the share `after` of the first deadline, or is cut at that of the second."""
    deadline = replace(PROMISE, **sooner).judged_by(PROMISE, RECEIVED)
    stands_in = response(200 * after, 200 * after, source="faq")
    cut = response(50.0, 1_000 * after, reason="deadline", status="incomplete")
    for told, stood_in in ((stands_in, True), (cut, False)):
        kept = attainment(told, deadline, RECEIVED, stood_in=stood_in)
        assert kept == (Attainment(first_token=not stood_in, whole=False) if is_judged else None)


@pytest.mark.parametrize(("total_ms", "late"), [(1_250.0, False), (1_250.1, True), (None, False)])
def test_an_end_may_come_a_quarter_of_a_second_after_its_deadline(total_ms: float | None, late: bool) -> None:
    """This holds for any source and any end."""
    for source in ("model", "faq"):
        told = response(total_ms=total_ms, source=source, status="cancelled", reason="client")
        assert is_late(told, PROMISE, RECEIVED) == late


def value(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_an_answer_is_counted_with_its_promise_and_an_adopted_one_without() -> None:
    """The adopted one's first text was another gateway's."""
    labels = {"bucket": "short", "deadline": "whole", "outcome": "met"}
    kept, late = value("replyline_gateway_deadlines_total", **labels), value("replyline_gateway_late_terminals_total")
    entry = make_entry(soft=200, hard=1_000)
    count_answer(entry, response())
    assert value("replyline_gateway_deadlines_total", **labels) == kept + 1
    assert value("replyline_gateway_late_terminals_total") == late
    count_answer(entry, response(total_ms=1_300.0))
    assert value("replyline_gateway_late_terminals_total") == late + 1
    entry.adoption = Adoption(latest_unix_ms=0.0)
    count_answer(entry, response(total_ms=1_300.0))
    assert value("replyline_gateway_late_terminals_total") == late + 1


@pytest.mark.parametrize(
    ("told", "fallback", "counts"),
    [
        (response(), None, (1, 1)),
        (response(300.0), None, (1, 0)),
        *((response(source="faq"), why, (1, 0)) for why in ("infeasible", "breaker", "share", "deadline", "silent")),
        *((response(source="faq"), why, (0, 0)) for why in ("held", "memory", "worker", "broker")),
        (response(status="failed", reason="internal"), None, (0, 0)),
        (response(status="cancelled", reason="client"), None, (0, 0)),
    ],
)
def test_an_autoscaler_is_told_only_what_more_workers_could_have_changed(
    told: Response, fallback: Any, counts: tuple[int, int]
) -> None:
    entry, demand = make_entry(soft=200, hard=1_000), Demand()
    count_judged(entry, told, demand)
    assert demand.asked() == {}, "no lane was asked"
    entry.answer.admitted_unix_ms = RECEIVED
    entry.answer.fallback, entry.answer.stood_in = fallback, fallback is not None
    count_judged(entry, told, demand)
    asked = demand.asked().get("champion", {}).get("short")
    assert counts == ((asked.judged, asked.in_time) if asked else (0, 0))


def test_padding_is_the_difference_to_equal_rows() -> None:
    """Rows of 3, 5 and 1 tokens are computed as three of 5."""
    before = [value("replyline_worker_tokens_total", kind=kind) for kind in ("padding", "prompt")]
    chunks = tuple(
        PrefillChunk(slot=slot, past=0, token_ids=[7] * length, sampling=None) for slot, length in enumerate((3, 5, 1))
    )
    step = EngineStep(prefill=chunks, prefilled=(), decode=(), decoded=(), transfers=())
    count_step(step, StepResult([None] * 3, [], transfer_s=0.0, prefill_s=0.01), CostModel.prior())
    after = [value("replyline_worker_tokens_total", kind=kind) for kind in ("padding", "prompt")]
    assert [now - then for now, then in zip(after, before, strict=True)] == [6, 9]


def test_proposed_and_accepted_tokens_are_counted_by_source() -> None:
    def counted() -> list[float]:
        name, pairs = "replyline_worker_speculated_tokens_total", product(("proposed", "accepted"), SOURCES)
        speculated = [value(name, outcome=outcome, source=source) for outcome, source in pairs]
        return [*speculated, value("replyline_worker_tokens_total", kind="output")]

    rows = tuple(
        DecodeRow(slot=slot, past=9, token_id=7, sampling=Sampling(), proposed=proposed)
        for slot, proposed in enumerate([(1, 2, 3), (), (4,)])
    )
    step = EngineStep(
        prefill=(), prefilled=(), decode=rows, decoded=(), transfers=(), sources=("faq", "faq", "conversation")
    )
    result = StepResult([], [1, 5, 6], transfer_s=0.0, mixed_s=0.01, verified=[[1, 2, 8], [5], [6]])
    before = counted()
    count_step(step, result, CostModel.prior())
    assert [now - then for now, then in zip(counted(), before, strict=True)] == [3, 1, 0, 2, 0, 0, 5]


def test_a_steps_planning_and_completing_are_timed_and_its_answer_counted_as_inference() -> None:
    bench = Bench()
    kinds = ("schedule", "complete", "decode", "prefill")
    before = {kind: value("replyline_worker_step_seconds_count", kind=kind) for kind in kinds}
    answers, timed = (
        value("infer_total", status="incomplete", reason="max_output_tokens"),
        value("infer_duration_seconds_count"),
    )
    drafts = bench.engine_loop.drafts

    def publish_and_stop(progress: Any) -> None:
        bench.worker.publish(progress)
        if bench.ends():
            bench.engine_loop.stop()

    drafts.publish = publish_and_stop
    bench.accept(1, output=3)
    bench.engine_loop.run()
    steps = {kind: value("replyline_worker_step_seconds_count", kind=kind) - before[kind] for kind in kinds}
    assert steps["schedule"] == steps["complete"] >= 3
    assert steps["prefill"] >= 1
    assert steps["decode"] >= 2
    assert value("infer_total", status="incomplete", reason="max_output_tokens") == answers + 1
    assert value("infer_duration_seconds_count") == timed + 1
