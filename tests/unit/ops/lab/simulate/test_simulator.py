"""Virtual time: the same scheduler, each request ended once, and a seed replayed to the last number."""

from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.simulate.rivals import IGNORES_DEADLINES, POLICIES, WHOLE_BATCHES, scheduler_of
from ops.lab.simulate.rows import Subject, row_of
from ops.traces.costs import CPU, EngineCosts
from ops.traces.drawn import make_trace
from ops.traces.trace import Request, Trace
from ops.virtual_worker.gate import Gate
from ops.virtual_worker.simulator import Run, SimulatedOutcome, Simulator
from ops.virtual_worker.virtual_engine import STOP, VirtualEngine
from shared.settings import Settings
from tests.support.fakes.simulated import MIXING, PLAIN, least_work, request, trace_of
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.scheduler import SchedulerLimits

LIMITS = SchedulerLimits(num_slots=4, prefill_chunk_tokens=64, max_prefill_rows=4, stop_token_ids=frozenset({STOP}))


def simulator(trace: Trace, policy: str, costs: EngineCosts = CPU, *, noise: float = 0.0, **options: Any) -> Simulator:
    model = CostModel.from_state(costs.table)
    return Simulator(
        trace=trace,
        scheduler=scheduler_of(policy, limits=LIMITS, costs=model, lengths=OutputLengths()),
        engine=VirtualEngine(costs, noise, Random("engine"), whole_batches=policy in WHOLE_BATCHES),
        deadlines=policy not in IGNORES_DEADLINES,
        learns=model if noise else None,
        **options,
    )


def overload(load: float = 2.0, seconds: float = 15.0) -> Trace:
    return make_trace("bimodal", load=load, seconds=seconds, seed=1, least=least_work(num_slots=4, chunk=64))


@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_seed_gives_the_same_result(policy: str) -> None:
    """Each ending and each step, with noise, predicted lengths, and admission before our own policy."""

    def run() -> Run:
        gate = Gate.of(Settings()) if policy == "goodput" else None
        return simulator(overload(), policy, noise=0.1, hints=False, gate=gate).run()

    assert run() == run()


def test_a_step_of_an_engine_that_mixes_is_one_call() -> None:
    """The second prompt of 5 tokens joins the first one's only decode step: 4 + 50 ms, then 1 + 4 + 5 x 10 + a row as a
    token of 10, then a decode step of 17."""
    trace = trace_of(request(0.0, prompt=5, output=1), request(1.0, prompt=5, output=1))
    assert simulator(trace, "fcfs-continuous", MIXING).run().busy_ms == pytest.approx(54 + 65 + 17)
    in_turn = msgspec.structs.replace(MIXING.table, key=PLAIN.table.key)
    apart = msgspec.structs.replace(MIXING, table=in_turn)
    assert simulator(trace, "fcfs-continuous", apart).run().busy_ms == pytest.approx(54 + (17 + 54) + 17)


@pytest.mark.parametrize("policy", POLICIES)
def test_every_request_has_one_ending_which_is_counted_once(policy: str) -> None:
    """In time, late, fallback and refused add up to the requests, in the trace's order."""
    trace = overload()
    run = simulator(trace, policy).run()
    assert [ending.request for ending in run.endings] == list(trace.requests)
    subject = Subject(trace=trace, policy=policy, lengths="known", least=least_work(num_slots=4), bound=None)
    row = row_of(subject, run)
    assert row.model_in_deadline + row.model_late + row.fallback + row.refused == row.requests == len(trace.requests)


@given(
    st.lists(
        st.builds(request, st.integers(0, 2_000).map(float), prompt=st.integers(1, 100), output=st.integers(1, 20)),
        min_size=1,
        max_size=12,
    ),
    st.sampled_from(POLICIES),
)
def test_the_engine_is_never_busier_than_the_time_that_has_passed(requests: list[Request], policy: str) -> None:
    """Steps follow one another; no answer ends before its request came and could be computed."""
    run = simulator(trace_of(*requests), policy).run()
    assert run.busy_ms <= max(ending.released_ms for ending in run.endings) + 1e-6
    for ending in run.endings:
        assert ending.released_ms >= ending.request.arrival_ms
        if ending.outcome is SimulatedOutcome.IN_DEADLINE:
            least_ms = least_work(num_slots=4, chunk=64).ms(ending.request)
            assert ending.released_ms - ending.request.arrival_ms >= least_ms - 1e-6


def test_an_answer_takes_its_prefill_and_one_step_a_token() -> None:
    """Ten prompt tokens and five of answer with its stop token, 10 ms each: first token after 100 ms, end after 150."""
    (ending,) = simulator(trace_of(request(40.0, prompt=10, output=5)), "goodput", PLAIN).run().endings
    assert (ending.first_token_ms, ending.released_ms) == (140.0, 190.0)
    assert ending.num_rows == 1 + 5
    assert ending.outcome is SimulatedOutcome.IN_DEADLINE


def test_a_policy_that_knows_no_deadline_ends_what_is_late_late() -> None:
    """Two requests, 2,040 ms of work, 2,030 ms of time: the last is answered all the same, too late."""
    twice = [request(prompt=100, output=2, soft=2_030, hard=2_030) for _ in range(2)]
    outcomes = [ending.outcome for ending in simulator(trace_of(*twice), "static", PLAIN).run().endings]
    assert outcomes == [SimulatedOutcome.LATE, SimulatedOutcome.LATE]  # they run as one padded batch
    outcomes = [ending.outcome for ending in simulator(trace_of(*twice), "fcfs-continuous", PLAIN).run().endings]
    assert outcomes == [SimulatedOutcome.IN_DEADLINE, SimulatedOutcome.LATE]


def test_what_cannot_be_met_falls_back_under_our_policy() -> None:
    """The same two: one answer in time, one fallback, before its deadline."""
    twice = [request(prompt=100, output=2, soft=1_500, hard=1_500) for _ in range(2)]
    endings = simulator(trace_of(*twice), "goodput", PLAIN).run().endings
    assert sorted(ending.outcome.name for ending in endings) == ["FALLBACK", "IN_DEADLINE"]
    fallback = next(ending for ending in endings if ending.outcome is SimulatedOutcome.FALLBACK)
    assert fallback.released_ms < 1_500
    assert fallback.num_rows == 0


def test_an_answer_whose_first_token_was_late_is_late_although_it_ends_in_time() -> None:
    """The fallback had answered before that."""
    late = request(prompt=100, output=2, soft=500, hard=3_000)
    (ending,) = simulator(trace_of(late), "fcfs-continuous", PLAIN).run().endings
    assert ending.outcome is SimulatedOutcome.LATE


def test_admission_answers_what_the_worker_could_not_at_once() -> None:
    """Far beyond capacity most fallbacks come at the arrival, and do not cost the engine a step."""
    trace = overload(load=20.0)
    run = simulator(trace, "goodput", gate=Gate.of(Settings())).run()
    waited = [ending.released_ms - ending.request.arrival_ms for ending in run.endings if ending.num_rows == 0]
    assert sum(ms == 0 for ms in waited) > len(waited) / 2
