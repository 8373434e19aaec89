"""The tokens of each prompt that a step computes: within its budget, never zero, and without making decoding
rows late."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.builders.worker import LinearCosts
from tests.support.fakes.scheduler_model import complete, make_scheduler, make_sequence
from workers.schedule.costs import PRIOR_DECODE, PRIOR_PREFILL, CostModel
from workers.schedule.prefill import Budget, plan_prefill
from workers.schedule.slots import StandingSlots
from workers.schedule.work import Work

GRAIN = 16
COSTS = [CostModel(decode=PRIOR_DECODE, prefill=PRIOR_PREFILL, mixes=mixes) for mixes in (False, True)]
budgets = st.builds(
    Budget,
    st.sampled_from(COSTS),
    st.builds(Work, rows=st.integers(1, 64), context=st.integers(1, 50_000)),
    most=st.integers(8, 1_000),
    stall_ms=st.one_of(st.floats(0, 1_000), st.just(math.inf)),
)


@given(budget=budgets, past=st.integers(0, 8_000))
def test_a_chunk_is_no_more_than_may_be_and_never_nothing(budget: Budget, past: int) -> None:
    """Beyond the smallest it lengthens the step by no more than it may; more patience never makes it smaller."""
    tokens = budget.tokens(past)
    assert min(GRAIN, budget.most) <= tokens <= budget.most
    longer_ms = budget.costs.ms(budget.rows.joined(tokens, past)) - budget.costs.ms(budget.rows)
    assert tokens <= GRAIN or longer_ms <= budget.stall_ms + 1e-6
    patient = Budget(budget.costs, budget.rows, budget.most, budget.stall_ms + 50)
    assert patient.tokens(past) >= tokens


@given(
    budget=budgets,
    prompts=st.lists(st.tuples(st.integers(1, 600), st.integers(0, 599), st.integers(0, 3)), min_size=1, max_size=8),
    max_rows=st.integers(1, 8),
)
def test_prompts_that_share_a_step_keep_its_budget_and_the_most_urgent_goes_on(
    budget: Budget, prompts: list[tuple[int, int, int]], max_rows: int
) -> None:
    """Each receives a chunk from its remaining tokens."""
    slots = StandingSlots(len(prompts))
    rows = [make_sequence(f"s{number}", prompt=length, soft=due) for number, (length, _, due) in enumerate(prompts)]
    for slot, (row, (length, computed, _)) in enumerate(zip(rows, prompts, strict=True)):
        slots.assign(row, slot)
        row.computed = min(computed, length - 1)
    chunks, chosen = plan_prefill(slots, lambda row: row.due_unix_ms, budget=budget, max_rows=max_rows, mixes=True)
    assert 1 <= len(chunks) <= max_rows
    assert [chunk.slot for chunk in chunks] == [slots.slot_of(row) for row in chosen]
    assert len({*chosen}) == len(chosen)
    assert all(chunk.past == row.computed for chunk, row in zip(chunks, chosen, strict=True))
    work = budget.rows
    for chunk in chunks:
        work = work.joined(len(chunk.token_ids), chunk.past)
    assert work.tokens <= budget.most
    assert work.tokens <= GRAIN or budget.costs.ms(work) - budget.costs.ms(budget.rows) <= budget.stall_ms + 1e-6
    assert [row.due_unix_ms for row in chosen] == sorted([row.due_unix_ms for row in rows])[: len(chosen)]


@pytest.mark.parametrize("mixes", [False, True])
@pytest.mark.parametrize(
    ("left_ms", "prompt_ms", "tokens"),
    [(500, 4_000, 96), (90, 4_000, 64), (90, 240, 96), (60, 4_000, 32), (15, 4_000, 16), (1, 4_000, 96)],
)
def test_a_prompt_takes_what_the_row_that_is_due_first_can_spare(
    left_ms: int, prompt_ms: int, tokens: int, *, mixes: bool
) -> None:
    """Unless the prompt has even less time. A token takes a millisecond. A row that is late in any case delays no
    prompt."""
    costs = LinearCosts(token_ms=1.0, step_ms=1.0)
    scheduler = make_scheduler(num_slots=3, chunk=200, decode_stall_ms=100.0, costs=costs, mixes=mixes)
    tight, easy = (
        make_sequence(name, prompt=1, output=10, soft=5_000, hard=hard) for name, hard in (("s1", 1_000), ("s2", 9_000))
    )
    for row in (tight, easy):
        row.output_hint = 10
        scheduler.add(row, 0)
    while not (tight.output_ids and easy.output_ids):
        step = scheduler.next_step(0)
        assert step is not None
        complete(scheduler, step)
    scheduler.add(make_sequence("s3", prompt=200, soft=1_000 - left_ms + prompt_ms, hard=9_000), 1_000 - left_ms)
    step = scheduler.next_step(1_000 - left_ms)
    assert step is not None
    assert [len(chunk.token_ids) for chunk in step.prefill] == [tokens]
