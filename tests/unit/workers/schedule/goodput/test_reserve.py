"""Slots reserved for long requests stay free for them and for no other request."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.workers.schedule.goodput.test_goodput import MACHINE, asked
from workers.schedule.goodput import build_scheduler
from workers.schedule.goodput.plan import LONG, Reserve
from workers.schedule.lengths import OutputLengths
from workers.schedule.scheduler import Scheduler, SchedulerLimits

SLOTS, KEPT = 5, 2
LATER = 100_000


def scheduler(share: float = KEPT / SLOTS) -> Scheduler:
    limits = SchedulerLimits(
        num_slots=SLOTS, prefill_chunk_tokens=64, max_prefill_rows=SLOTS, stop_token_ids=frozenset({-1})
    )
    return build_scheduler(limits=limits, costs=MACHINE, lengths=OutputLengths(), long_share=share)


def step(worker: Scheduler, now: float) -> list[str]:
    """Compute a step, no answer of which ends; the buckets of those that have slots after it."""
    worker.sweep(now)
    todo = worker.next_step(now)
    if todo is None:
        return []
    worker.complete(todo, [1] * len(todo.prefill), [1] * len(todo.decode), now)
    return [row.bucket for row in worker.rows_in(range(SLOTS))]


@pytest.mark.parametrize(("share", "slots", "kept"), [(0.0, 8, 0), (0.2, 16, 3), (0.2, 4, 1), (0.9, 2, 1), (0.5, 1, 0)])
def test_a_share_is_a_slot_at_least_and_never_all(share: float, slots: int, kept: int) -> None:
    assert Reserve.from_share(share, slots).kept == kept


def test_the_soonest_free_are_set_aside_and_one_is_left() -> None:
    free = [1.0, 2.0, 5.0]
    assert Reserve(2).set_aside(free, [asked("s1", deadline=LATER, bucket=LONG)]) == [1.0], "one is held already"
    assert free == [2.0, 5.0]
    assert Reserve(4).set_aside(free, []) == [2.0]


@given(st.lists(st.tuples(st.sampled_from(["short", "medium", LONG]), st.integers(0, 3)), min_size=1, max_size=40))
def test_others_never_hold_a_kept_slot(arrivals: list[tuple[str, int]]) -> None:
    worker, now = scheduler(), 0.0
    for number, (bucket, gap) in enumerate(arrivals):
        worker.add(asked(f"s{number}", deadline=LATER, output=500, bucket=bucket), now)
        for _ in range(gap):
            now += 10
            held = step(worker, now)
            assert sum(one != LONG for one in held) <= SLOTS - KEPT


def test_a_long_request_starts_at_once_beside_a_crowd_of_short_ones() -> None:
    for share, starts in ((KEPT / SLOTS, True), (0.0, False)):
        worker = scheduler(share)
        for number in range(3 * SLOTS):
            worker.add(asked(f"s{number}", deadline=LATER, output=500, bucket="short"), 0.0)
        for now in range(10, 200, 10):
            step(worker, now)
        worker.add(asked("s99", deadline=LATER, output=500, bucket=LONG), 200.0)
        assert (LONG in step(worker, 210.0)) is starts


def test_a_lone_slot_is_nobodys_reserve() -> None:
    worker = scheduler(0.0)
    worker.add(asked("s1", deadline=LATER, bucket="short"), 0.0)
    assert step(worker, 10.0) == ["short"]
