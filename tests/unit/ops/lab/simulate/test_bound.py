"""The offline bound: never below an achievable schedule, and exact in the cases with a known optimum."""

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.lab.simulate.bound import upper_bound
from ops.lab.simulate.machine import Windows, fill
from ops.lab.simulate.rivals import IGNORES_DEADLINES, POLICIES, WHOLE_BATCHES, scheduler_of
from ops.traces.costs import EngineCosts
from ops.traces.trace import Request
from ops.virtual_worker.simulator import SimulatedOutcome, Simulator
from ops.virtual_worker.virtual_engine import STOP, VirtualEngine
from tests.support.fakes.simulated import MIXING, PLAIN, least_work, request, trace_of
from tests.unit.examples import examples
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.scheduler import SchedulerLimits

LEAST = least_work(PLAIN)


def small_requests(least_soft_ms: int) -> st.SearchStrategy[Request]:
    return st.builds(
        request,
        st.integers(0, 400).map(float),
        prompt=st.integers(1, 12),
        output=st.integers(1, 12),
        soft=st.integers(least_soft_ms, 500),
        hard=st.integers(50, 500),
        bucket=st.sampled_from(["short", "long"]),
    )


whole_answers = small_requests(500)  # one deadline: the first token's is never before the answer's
streamed_answers = small_requests(1)


@given(st.lists(whole_answers, min_size=1, max_size=8))
def test_no_set_of_requests_that_can_be_met_is_larger(requests: list[Request]) -> None:
    """Every subset is tried: one can be met only if in each interval the work that belongs into it fits."""
    best = max(
        size
        for size in range(len(requests) + 1)
        for chosen in combinations(requests, size)
        if all(LEAST.ms(one) <= one.deadline_ms for one in chosen) and _fits(chosen)
    )
    assert upper_bound(trace_of(*requests), LEAST).without_floors >= best


@given(st.lists(whole_answers, min_size=1, max_size=7))
def test_no_set_that_keeps_the_floors_is_larger_than_the_bound_under_them(requests: list[Request]) -> None:
    """The same over the subsets whose work reaches each class's floor."""
    bound = upper_bound(trace_of(*requests), LEAST)
    sizes = [
        size
        for size in range(len(requests) + 1)
        for chosen in combinations(requests, size)
        if _keeps(bound.floor_ms, chosen) and all(LEAST.ms(one) <= one.deadline_ms for one in chosen) and _fits(chosen)
    ]
    assert bound.answers >= max(sizes, default=0)
    assert bound.answers <= bound.without_floors


@pytest.mark.parametrize("costs", [PLAIN, MIXING])
@settings(max_examples=examples(40), deadline=None)
@given(st.lists(streamed_answers, min_size=1, max_size=30), st.integers(1, 4))
def test_no_policy_answers_more_in_time(costs: EngineCosts, requests: list[Request], num_slots: int) -> None:
    """With soft deadlines before the hard ones, and few slots; lengths known."""
    trace = trace_of(*requests)
    bound = upper_bound(trace, least_work(costs, num_slots=num_slots, chunk=8))
    for policy in POLICIES:
        limits = SchedulerLimits(
            num_slots=num_slots,
            prefill_chunk_tokens=8,
            max_prefill_rows=4,
            stop_token_ids=frozenset({STOP}),
            mixes=costs.table.key.mixes,
        )
        model = CostModel.from_state(costs.table)
        scheduler = scheduler_of(policy, limits=limits, costs=model, lengths=OutputLengths())
        engine = VirtualEngine(costs, 0.0, Random(0), whole_batches=policy in WHOLE_BATCHES)
        deadlines = policy not in IGNORES_DEADLINES
        run = Simulator(trace=trace, scheduler=scheduler, engine=engine, deadlines=deadlines).run()
        good = sum(ending.outcome is SimulatedOutcome.IN_DEADLINE for ending in run.endings)
        assert good <= bound.without_floors, policy


def test_the_cheap_are_taken_before_the_dear_but_for_the_floor() -> None:
    """Short ones take 150 ms, long ones 1,500: without floors the short alone would be answered."""
    short = [request(0.0, soft=3_000, hard=3_000) for _ in range(20)]
    long = [request(0.0, prompt=100, output=50, soft=3_000, hard=3_000, bucket="long") for _ in range(4)]
    bound = upper_bound(trace_of(*short, *long), LEAST)
    assert bound.without_floors == 20
    # Two thirds of the work offered is long: half of that share of 3,000 ms is its floor, two thirds of an answer.
    assert bound.floor_ms == pytest.approx({"long": 1_000, "short": 500})
    assert bound.answers == 14  # 2,000 ms of short ones, and that part of a long one


def test_an_earlier_first_token_deadline_limits_how_many_requests_can_begin() -> None:
    """Ten requests of 100 ms of prompt and 10 of decode: with 300 ms to the first token three can begin (up to two more
    by what is relaxed); with 3,000 ms all are answered."""
    late = [request(0.0, prompt=10, output=1, soft=3_000, hard=3_000) for _ in range(10)]
    soon = [request(0.0, prompt=10, output=1, soft=300, hard=3_000) for _ in range(10)]
    assert upper_bound(trace_of(*late), LEAST).answers == 10
    assert 3 <= upper_bound(trace_of(*soon), LEAST).answers <= 5


def test_a_full_window_leaves_the_one_after_it_its_room() -> None:
    release, due = np.array([0, 0, 1]), np.array([1, 1, 2])
    taken = fill(Windows(release=release, due=due, bin_ms=1.0, extra_ms=0.0), np.ones(3), np.arange(3))
    assert taken.tolist() == [1.0, 0.0, 1.0]


def _fits(chosen: tuple[Request, ...]) -> bool:
    """Hall's condition, at the only ends of intervals that matter."""
    windows = [(one.arrival_ms, one.arrival_ms + one.deadline_ms, LEAST.ms(one)) for one in chosen]
    starts, ends = {start for start, _, _ in windows}, {end for _, end, _ in windows}
    return all(
        sum(work for start, end, work in windows if a <= start and end <= b) <= b - a + 1e-9
        for a in starts
        for b in ends
        if a < b
    )


def _keeps(floors: dict[str, float], chosen: tuple[Request, ...]) -> bool:
    return all(
        sum(LEAST.ms(one) for one in chosen if one.bucket == bucket) >= floor - 1e-9 for bucket, floor in floors.items()
    )
