"""The comparison of policies: the trace's texts, what counts as in time, and what is said of it."""

from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from ops.measure.quantiles import Quantiles
from ops.model.prepare import prepare_model
from ops.simulate.simulator import Outcome, Simulator
from ops.simulate.virtual_engine import STOP
from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.settings import Settings
from shared.wire.messages import ReplyDelta, ReplyDone, Timings, Usage
from shared.wire.topics import BucketEdges
from tests.bench.policies.engine import EngineFacts, MeteredEngine, facts_of_metrics
from tests.bench.policies.outcome import Counts, LiveAnswer, count_live, count_simulated, quotient, ratio
from tests.bench.policies.program import PoliciesOptions, _endless
from tests.bench.policies.table import PolicyRow, show_rows
from tests.bench.policies.trace import script_of
from tests.support.fakes.simulated import PLAIN, request, trace_of
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import build_scheduler
from workers.schedule.scheduler import SchedulerLimits

EDGES = BucketEdges(short_max_tokens=64, medium_max_tokens=256)
AROUND = 9
DUE = 1_000_000.0
OPTIONS = PoliciesOptions(
    policies=("goodput",),
    trace="bimodal",
    load=1.5,
    seconds=60.0,
    seed=1,
    slots=16,
    engine="onnx",
    broker="embedded",
    costs=None,
    json_path=None,
)
FACTS = EngineFacts(
    decode_steps=1,
    mean_rows=1.0,
    decode_ms=5.0,
    prefill_steps=1,
    prefill_ms=5.0,
    prompt_tokens=1,
    output_tokens=1,
    busy=1.0,
)


def count(text: str) -> int:
    return len(text.split())


def count_prompt(text: str) -> int:
    return count(text) + AROUND


@given(st.lists(st.tuples(st.integers(1, 1_024), st.integers(1, 160)), min_size=1, max_size=8))
def test_a_script_asks_for_the_traces_lengths(lengths: list[tuple[int, int]]) -> None:
    """Where a prompt has room for a word, it is as long as the trace wants it; an answer is cut at its length."""
    trace = trace_of(*(request(i, prompt=prompt, output=output) for i, (prompt, output) in enumerate(lengths)))
    script = script_of(trace, count=count, count_prompt=count_prompt, edges=EDGES)
    for wanted, asked, text in zip(trace.requests, script.trace.requests, script.texts, strict=True):
        assert asked.prompt_tokens == count_prompt(text) == max(wanted.prompt_tokens, AROUND + 1)
        assert asked.bucket == EDGES.bucket_of(count(text))
        assert asked.max_output_tokens == asked.output_tokens == wanted.output_tokens
        assert asked.arrival_ms == wanted.arrival_ms


def test_no_two_texts_of_a_script_are_the_same() -> None:
    """Nothing that remembers prompts could answer a later one sooner."""
    script = script_of(
        trace_of(*(request(i, prompt=60) for i in range(50))), count=count, count_prompt=count_prompt, edges=EDGES
    )
    assert len(set(script.texts)) == 50


def done(status: str = "completed", reason: str = "stop", source: str = "model", output_tokens: int = 5) -> ReplyDone:
    return ReplyDone(
        request_id="0",
        session_id="s",
        attempt=1,
        status=status,  # type: ignore[arg-type]
        reason=reason,  # type: ignore[arg-type]
        source=source,  # type: ignore[arg-type]
        output_text="text",
        usage=Usage(input_tokens=10, output_tokens=output_tokens),
        timings=Timings(),
    )


DELTA = ReplyDelta(request_id="0", session_id="s", attempt=1, seq=0, offset=0, delta="te")


def answer(*said: tuple[ReplyDelta | ReplyDone, float]) -> LiveAnswer:
    """A request due at `DUE`, soft deadline 1 s, hard 3 s; `said` at so many ms after it."""
    made = LiveAnswer(request=request(soft=1_000, hard=3_000), due_unix_ms=DUE)
    for reply, after_ms in said:
        made.take(reply, DUE + after_ms)
    return made


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        ([(DELTA, 1_000), (done(), 3_000)], Outcome.IN_DEADLINE),
        ([(DELTA, 900), (done("incomplete", "max_output_tokens"), 2_000)], Outcome.IN_DEADLINE),
        ([(done(), 900)], Outcome.IN_DEADLINE),
        ([(done(), 1_001)], Outcome.LATE),
        ([(DELTA, 1_001), (done(), 2_000)], Outcome.LATE),
        ([(DELTA, 900), (done(), 3_001)], Outcome.LATE),
        ([(DELTA, 900), (done("incomplete", "deadline"), 2_000)], Outcome.LATE),
        ([(DELTA, 900), (done("incomplete", "infeasible"), 2_000)], Outcome.LATE),
        ([(DELTA, 900)], Outcome.LATE),
        ([], Outcome.LATE),
        ([(DELTA, 900), (done(source="faq"), 900)], Outcome.FALLBACK),
        ([(done(source="busy"), 5)], Outcome.FALLBACK),
        ([(done("incomplete", "deadline", output_tokens=0), 5_000)], Outcome.FALLBACK),
    ],
)
def test_in_time_is_a_whole_answer_by_the_model_within_both_deadlines(
    said: list[tuple[ReplyDelta | ReplyDone, float]], outcome: Outcome
) -> None:
    """A deadline itself is still in time; what is not answered at all is late, what the FAQ answers is a fallback."""
    assert answer(*said).outcome is outcome


def test_only_the_first_end_of_an_answer_counts() -> None:
    """A second attempt that comes later changes nothing."""
    asked = answer((DELTA, 100), (done(), 200), (done("failed", "internal"), 5_000))
    assert asked.outcome is Outcome.IN_DEADLINE
    assert asked.done_unix_ms == DUE + 200


def test_an_answer_that_the_model_ended_early_is_told() -> None:
    """The trace's answer has 5 tokens and its prompt 10."""
    assert answer((done(output_tokens=4), 500)).stopped_early
    assert not answer((done(output_tokens=5), 500)).stopped_early
    assert not answer((done("incomplete", "deadline", output_tokens=4), 500)).stopped_early
    assert not answer((done(), 500)).wrong_length


def test_live_counts_add_up_to_the_requests() -> None:
    """Each request is counted once; the unanswered are among the late."""
    counts = count_live(
        [
            answer((DELTA, 100), (done(), 200)),
            answer((DELTA, 300), (done(), 9_000)),
            answer(),
            answer((done(source="faq"), 50)),
        ]
    )
    assert (counts.model_in_deadline, counts.model_late, counts.unanswered, counts.fallback) == (1, 2, 1, 1)
    assert counts.in_deadline_by_bucket == {"short": 1}
    assert (counts.ttft_ms.p50, counts.ttft_ms.p99) == (100.0, 300.0)


def counts_of(in_deadline: int) -> Counts:
    return Counts(
        requests=100,
        model_in_deadline=in_deadline,
        model_late=100 - in_deadline,
        fallback=0,
        unanswered=0,
        in_deadline_by_bucket={"short": in_deadline},
        ttft_ms=Quantiles(),
    )


def test_a_policy_without_answers_in_time_counts_as_one_in_a_ratio() -> None:
    """So a ratio is never more than was measured."""
    assert ratio(counts_of(80), counts_of(10)) == 8.0
    assert ratio(counts_of(80), counts_of(0)) == 80.0
    assert ratio(None, counts_of(10)) is None
    assert quotient(counts_of(9), counts_of(10)) == 0.9
    assert quotient(counts_of(9), counts_of(0)) is None


def test_the_metered_engine_adds_up_what_a_simulated_worker_computes() -> None:
    """Two requests of 10 prompt tokens and 5 of answer on a machine that takes 10 ms a prompt token and row."""
    limits = SchedulerLimits(
        num_slots=1, prefill_chunk_tokens=128, max_prefill_rows=1, stop_token_ids=frozenset({STOP})
    )
    scheduler = build_scheduler(
        "fcfs-continuous", limits=limits, costs=CostModel.from_state(PLAIN.table), lengths=OutputLengths()
    )
    engine = MeteredEngine(PLAIN, 0.0, Random(0))
    trace = trace_of(request(output=5, max_output_tokens=5), request(output=5, max_output_tokens=5))
    run = Simulator(trace=trace, scheduler=scheduler, engine=engine, hints=False).run()
    facts = engine.facts(run.busy_ms / 1_000)
    assert (facts.decode_steps, facts.mean_rows, facts.decode_ms) == (8, 1.0, 10.0)
    assert (facts.prefill_steps, facts.prefill_ms, facts.prompt_tokens) == (2, 100.0, 20)
    assert (facts.output_tokens, facts.busy) == (10, 1.0)
    assert count_simulated(run.endings).model_in_deadline == 2


def test_a_workers_metrics_say_what_its_engine_did() -> None:
    """Sums and counts by kind, from the page as Prometheus reads it."""
    registry = CollectorRegistry()
    step = Histogram("replyline_worker_step_seconds", "", ["kind"], registry=registry)
    rows = Histogram("replyline_worker_batch_rows", "", registry=registry)
    for kind, seconds in (("decode", 0.010), ("decode", 0.020), ("prefill", 0.060)):
        step.labels(kind).observe(seconds)
    rows.observe(4)
    rows.observe(8)
    Counter("replyline_worker_prompt_tokens_total", "", registry=registry).inc(120)
    Counter("replyline_worker_output_tokens_total", "", registry=registry).inc(13)
    facts = facts_of_metrics(generate_latest(registry).decode(), span_s=0.1)
    assert facts == EngineFacts(
        decode_steps=2,
        mean_rows=6.0,
        decode_ms=15.0,
        prefill_steps=1,
        prefill_ms=60.0,
        prompt_tokens=120,
        output_tokens=13,
        busy=0.9,
    )


def row(policy: str, live: int, simulated: int) -> PolicyRow:
    return PolicyRow(
        policy=policy,
        live=counts_of(live),
        simulated=counts_of(simulated),
        simulated_by_live=quotient(counts_of(simulated), counts_of(live)),
        live_engine=FACTS,
        simulated_engine=FACTS,
        send_lag_ms=Quantiles(),
        stopped_early=0,
        wrong_length=0,
        others_cpu=0.01,
    )


def test_the_ratios_stand_beside_their_targets() -> None:
    """Eight times the answers of first come, first served; and simulated counts within 15 %."""
    said = show_rows("bimodal", 1.5, [row("goodput", 80, 90), row("fcfs-continuous", 10, 15)], costs_others_cpu=0.03)
    assert "goodput / fcfs-continuous, answers in time: 8.00 live (≥ 8.00 met), 6.00 simulated" in said
    assert "goodput, simulated count apart from the live one by 0.125 (≤ 0.15 met)" in said
    assert "fcfs-continuous, simulated count apart from the live one by 0.5 (≤ 0.15 missed)" in said


def test_a_trace_without_targets_has_ratios_all_the_same() -> None:
    """Only the verdict is left out."""
    said = show_rows("heavy", 2.0, [row("goodput", 80, 80), row("edf", 40, 40)], costs_others_cpu=0.03)
    assert "goodput / edf, answers in time: 2.00 live, 2.00 simulated" in said


def test_a_busy_machine_is_told() -> None:
    """By other processes' share of the cores while the costs were measured, or in a run."""
    quiet = [row("goodput", 80, 80)]
    busy = [msgspec.structs.replace(quiet[0], others_cpu=0.3)]
    assert "NOT A QUIET MACHINE" not in show_rows("bimodal", 1.5, quiet, costs_others_cpu=0.03)
    assert "NOT A QUIET MACHINE" in show_rows("bimodal", 1.5, quiet, costs_others_cpu=0.35)
    assert "NOT A QUIET MACHINE" in show_rows("bimodal", 1.5, busy, costs_others_cpu=0.03)


def test_rows_are_written_with_stable_keys() -> None:
    """What scripts read of `--json`."""
    keys = msgspec.to_builtins(row("edf", 1, 1))
    assert list(keys) == [
        "policy",
        "live",
        "simulated",
        "simulated_by_live",
        "live_engine",
        "simulated_engine",
        "send_lag_ms",
        "stopped_early",
        "wrong_length",
        "others_cpu",
    ]
    assert list(keys["live"])[:5] == ["requests", "model_in_deadline", "model_late", "fallback", "unanswered"]


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ({"policies": ("lifo",)}, "--policy lifo"),
        ({"trace": "nothing"}, "--trace nothing"),
        ({"load": 0.0}, "--load 0"),
        ({"load": float("nan")}, "--load nan"),
        ({"seconds": -1.0}, "--seconds -1"),
        ({"slots": 0}, "--slots 0"),
        ({"json_path": Path("/nowhere/at/all.json")}, "--json"),
    ],
)
def test_a_wrong_option_is_named_before_anything_starts(wrong: dict[str, object], named: str) -> None:
    """The message has the option and what was given."""
    with pytest.raises(SettingsError, match=named):
        replace(OPTIONS, **wrong).check()  # type: ignore[arg-type]


def test_options_within_their_ranges_are_taken() -> None:
    """The defaults, and several policies."""
    replace(OPTIONS, policies=("goodput", "static")).check()


@pytest.mark.parametrize("engine", ["onnx", "fake"])
def test_the_worker_is_given_a_model_whose_answers_end_where_the_trace_says(
    tmp_path: Path, tiny_source: Path, engine: Literal["onnx", "fake"]
) -> None:
    """The demo's model would end them after some twenty tokens. The scripted engine has no model."""
    folder = prepare_model(tmp_path, "fp32", source=tiny_source)
    settings = Settings.model_validate({"model": {"dir": folder.path}})
    with _endless(settings, replace(OPTIONS, engine=engine)) as env:
        stops = [ModelFolder.open(Path(path)).manifest.stop_token_ids for path in env.values()]
        assert (list(env), stops) == ((["MODEL__DIR"], [()]) if engine == "onnx" else ([], []))
