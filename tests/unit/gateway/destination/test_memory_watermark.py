"""How near the memory budget a process is, and what follows; a level does not flutter."""

import asyncio
import resource

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.destination import memory_watch
from gateway.destination.admission import AdmissionLimits, AdmissionPolicy, check_inflight
from gateway.destination.choose import choose
from gateway.destination.destination import TO_CHAMPION, Fallback
from gateway.destination.gate import AdmissionGate
from gateway.destination.lanes import LaneAdmissions
from gateway.destination.memory_watch import MIB, REFUSE_AT, SHED_AT, MemoryLevel, MemoryWatch, memory_level
from shared.errors import ProtocolError
from shared.settings import Settings
from tests.support.builders.gateway import make_entry

BUDGET = 1_000 * MIB
LEVELS = st.sampled_from(MemoryLevel)
RESIDENT = st.integers(0, 2 * BUDGET)


@pytest.mark.parametrize(
    ("percent", "was", "level"),
    [
        (0, MemoryLevel.NORMAL, MemoryLevel.NORMAL),
        (91.9, MemoryLevel.NORMAL, MemoryLevel.NORMAL),
        (92, MemoryLevel.NORMAL, MemoryLevel.SHEDDING),
        (94.9, MemoryLevel.NORMAL, MemoryLevel.SHEDDING),
        (95, MemoryLevel.NORMAL, MemoryLevel.REFUSING),
        (300, MemoryLevel.NORMAL, MemoryLevel.REFUSING),
        (93.1, MemoryLevel.REFUSING, MemoryLevel.REFUSING),
        (92.9, MemoryLevel.REFUSING, MemoryLevel.SHEDDING),
        (90.1, MemoryLevel.REFUSING, MemoryLevel.SHEDDING),
        (94.9, MemoryLevel.SHEDDING, MemoryLevel.SHEDDING),
        (90.1, MemoryLevel.SHEDDING, MemoryLevel.SHEDDING),
        (89.9, MemoryLevel.SHEDDING, MemoryLevel.NORMAL),
    ],
)
def test_it_sheds_at_92_and_refuses_at_95_percent_of_the_budget_and_ends_two_percent_below(
    percent: float, was: MemoryLevel, level: MemoryLevel
) -> None:
    assert memory_level(int(percent * BUDGET / 100), BUDGET, was) is level


@given(RESIDENT, st.integers(1, BUDGET), LEVELS)
def test_each_watermark_takes_effect_from_any_state(resident: int, budget: int, was: MemoryLevel) -> None:
    level = memory_level(resident, budget, was)
    if resident >= REFUSE_AT * budget:
        assert level is MemoryLevel.REFUSING
    if resident >= SHED_AT * budget:
        assert level >= MemoryLevel.SHEDDING
    if resident < (SHED_AT - 0.03) * budget:
        assert level is MemoryLevel.NORMAL


@given(RESIDENT, RESIDENT, LEVELS)
def test_more_memory_is_never_a_lower_level(one: int, other: int, was: MemoryLevel) -> None:
    less, more = sorted((one, other))
    assert memory_level(less, BUDGET, was) <= memory_level(more, BUDGET, was)


@given(
    st.integers(BUDGET * 88 // 100, BUDGET * 98 // 100),
    st.lists(st.integers(-BUDGET // 101, BUDGET // 101), max_size=50),
)
def test_a_level_does_not_change_while_memory_moves_by_a_hundredth(resident: int, moves: list[int]) -> None:
    """Up it may go by such a step, and then it stays there."""
    level = memory_level(resident, BUDGET, MemoryLevel.NORMAL)
    seen = {level}
    for move in moves:
        level = memory_level(resident + move, BUDGET, level)
        seen.add(level)
    assert len(seen) <= 2
    assert level == max(seen)


def memory(percent: int) -> MemoryWatch:
    watch = MemoryWatch(BUDGET)
    watch.update(percent * BUDGET // 100)
    return watch


def keeper(percent: int) -> AdmissionGate:
    return AdmissionGate(LaneAdmissions(AdmissionPolicy()), memory(percent))


@pytest.mark.parametrize(("percent", "reason"), [(91, None), (92, "memory"), (96, "memory")])
def test_above_the_first_watermark_the_fallback_answers_immediately(percent: int, reason: str | None) -> None:
    where = choose(make_entry().request, TO_CHAMPION, keeper(percent).view(0))
    assert where == (TO_CHAMPION if reason is None else Fallback("memory", TO_CHAMPION))


def test_above_the_second_watermark_a_request_is_refused_with_a_time_to_retry() -> None:
    limits = AdmissionLimits.of(Settings())
    for percent in (0, 94):
        check_inflight(limits, inflight=0, of_connection=0, memory_full=memory(percent).refuses)
    with pytest.raises(ProtocolError, match="no memory left") as caught:
        check_inflight(limits, inflight=0, of_connection=0, memory_full=memory(95).refuses)
    error = caught.value
    assert (error.code, error.kind, error.retriable) == ("memory_full", "overloaded_error", True)
    assert error.retry_after_ms


def test_a_refusing_gateway_is_not_ready_and_says_why() -> None:
    assert [memory(percent).missing() for percent in (0, 94)] == [None, None]
    assert memory(97).missing() == "970 of 1000 MiB are in use: new connections are refused"


async def test_without_a_budget_nothing_is_watched() -> None:
    """The check returns immediately, and the level stays."""
    watch = MemoryWatch(0)
    await watch.watch()
    assert watch.level is MemoryLevel.NORMAL


async def test_a_process_without_free_file_descriptors_is_still_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "_WATCH_S", 0)
    watch = MemoryWatch(BUDGET)
    watching = asyncio.create_task(watch.watch())
    await asyncio.sleep(0)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        watch._resident_bytes = 0
        for _ in range(3):
            await asyncio.sleep(0)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert watch._resident_bytes > MIB
    assert not watching.done()
    watching.cancel()
