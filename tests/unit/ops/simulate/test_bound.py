"""The offline bound: never below what a schedule can achieve, and exact where that is known."""

from itertools import combinations
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.simulate.bound import upper_bound
from ops.simulate.machine import Windows, fill
from ops.simulate.rivals import IGNORES_DEADLINES, POLICIES, WHOLE_BATCHES, scheduler_of
from ops.simulate.simulator import Outcome, Simulator
from ops.simulate.virtual_engine import STOP, VirtualEngine
from ops.traces.trace import Request
from tests.support.fakes.simulated import PLAIN, least_work, request, trace_of
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


@settings(max_examples=examples(40), deadline=None)
@given(st.lists(streamed_answers, min_size=1, max_size=30), st.integers(1, 4))
def test_no_policy_answers_more_in_time(requests: list[Request], num_slots: int) -> None:
    """With soft deadlines before the hard ones, and few slots; lengths known."""
    trace = trace_of(*requests)
    bound = upper_bound(trace, least_work(PLAIN, num_slots=num_slots, chunk=8))
    for policy in POLICIES:
        limits = SchedulerLimits(
            num_slots=num_slots, prefill_chunk_tokens=8, max_prefill_rows=4, stop_token_ids=frozenset({STOP})
        )
        model = CostModel.from_state(PLAIN.table)
        scheduler = scheduler_of(policy, limits=limits, costs=model, lengths=OutputLengths())
        engine = VirtualEngine(PLAIN, 0.0, Random(0), whole_batches=policy in WHOLE_BATCHES)
        deadlines = policy not in IGNORES_DEADLINES
        run = Simulator(trace=trace, scheduler=scheduler, engine=engine, deadlines=deadlines).run()
        good = sum(ending.outcome is Outcome.IN_DEADLINE for ending in run.endings)
        assert good <= bound.without_floors, policy


@given(st.lists(st.tuples(st.integers(0, 8), st.integers(1, 5)), min_size=1, max_size=14))
def test_jobs_of_one_bin_are_placed_as_well_as_any_matching_does(windows: list[tuple[int, int]]) -> None:
    """Unit jobs in whole bins: the greedy amount is the size of a greatest matching of jobs and bins."""
    release = np.array([start for start, _ in windows])
    due = release + np.array([length for _, length in windows])
    taken = fill(
        Windows(release=release, due=due, bin_ms=1.0, extra_ms=0.0),
        np.ones(len(windows)),
        np.arange(len(windows)),
    )
    assert taken.sum() == pytest.approx(_greatest_matching(release.tolist(), due.tolist()))


def test_what_fits_is_all_answered() -> None:
    """Where the machine is idle most of the time nothing is lost, floors or none."""
    bound = upper_bound(trace_of(*(request(1_000.0 * place, bucket="long") for place in range(20))), LEAST)
    assert (bound.answers, bound.without_floors) == (20, 20)


def test_a_machine_that_is_asked_for_twice_what_it_has_answers_half() -> None:
    """Twenty requests of 150 ms of work in one window of 1,500 ms: ten."""
    bound = upper_bound(trace_of(*(request(0.0, soft=1_500, hard=1_500) for _ in range(20))), LEAST)
    assert bound.without_floors == 10


def test_the_cheap_are_taken_before_the_dear_but_for_the_floor() -> None:
    """Short ones take 150 ms, long ones 1,500: without floors the short alone would be answered."""
    short = [request(0.0, soft=3_000, hard=3_000) for _ in range(20)]
    long = [request(0.0, prompt=100, output=50, soft=3_000, hard=3_000, bucket="long") for _ in range(4)]
    bound = upper_bound(trace_of(*short, *long), LEAST)
    assert bound.without_floors == 20
    # Two thirds of the work offered is long: half of that share of 3,000 ms is its floor, two thirds of an answer.
    assert bound.floor_ms == pytest.approx({"long": 1_000, "short": 500})
    assert bound.answers == 14  # 2,000 ms of short ones, and that part of a long one


def test_what_cannot_be_met_even_alone_is_worth_nothing() -> None:
    """Its steps come one by one, however much machine there is."""
    assert upper_bound(trace_of(request(0.0, prompt=100, soft=900, hard=900)), LEAST).without_floors == 0


def test_a_first_token_that_is_due_sooner_binds_what_can_begin() -> None:
    """Ten requests of 100 ms of prompt and 10 of decode: with 300 ms to the first token three can begin (up to two more
    by what is relaxed); with 3,000 ms all are answered."""
    late = [request(0.0, prompt=10, output=1, soft=3_000, hard=3_000) for _ in range(10)]
    soon = [request(0.0, prompt=10, output=1, soft=300, hard=3_000) for _ in range(10)]
    assert upper_bound(trace_of(*late), LEAST).answers == 10
    assert 3 <= upper_bound(trace_of(*soon), LEAST).answers <= 5


def test_nothing_offered_is_nothing_answered() -> None:
    """An empty trace has a bound as well."""
    assert upper_bound(trace_of(), LEAST).answers == 0


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


def _greatest_matching(release: list[int], due: list[int]) -> int:
    """By augmenting paths."""
    held: dict[int, int] = {}

    def place(job: int, seen: set[int]) -> bool:
        for at in range(release[job], due[job]):
            if at not in seen:
                seen.add(at)
                if at not in held or place(held[at], seen):
                    held[at] = job
                    return True
        return False

    return sum(place(job, set()) for job in range(len(release)))
