"""The size of a pool: immediate growth, a shrink when it is certain, and a missing report is never zero."""

import math
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scaling.autoscale.policy import DemandScaler, Past, Sizing
from ops.scaling.autoscale.scaler import Seen, Wanted
from shared.wire.scaling import ScalingRecord

SIZING = Sizing(carries=0.5, attainment=0.96, least=1, most=12)
MINUTE, HOUR = 60_000.0, 3_600_000.0


def in_time(load: float) -> float:
    return 1.0 if load <= 0.5 else 0.5


def scaler(wanted: int | None = None, **changes: Any) -> DemandScaler:
    return DemandScaler(msgspec.structs.replace(SIZING, **changes), in_time, Past(wanted=wanted))


def look(pool: DemandScaler, minute: float, asked: float | None, **seen: Any) -> Wanted:
    found = pool.past.wanted or 1
    return pool.decide(Seen(now_unix_ms=minute * MINUTE, asked=asked, **({"found": found} | seen)))


def sizes(pool: DemandScaler, asked: list[float | None], every_minutes: float = 1.0, **seen: Any) -> list[int]:
    return [look(pool, number * every_minutes, load, **seen).workers for number, load in enumerate(asked)]


moments = st.tuples(
    st.floats(0.01, 30.0),  # minutes since the moment before
    st.none() | st.floats(0.0, 20.0),  # asked
    st.none() | st.floats(0.0, 20.0),  # expected
    st.none() | st.integers(0, 20),  # found
    st.integers(0, 3_000),  # behind
    st.booleans(),  # whole
)


@given(st.lists(moments, max_size=60))
def test_every_trace_keeps_the_promises(trace: list[tuple[Any, ...]]) -> None:
    """Within the bounds; at least what carries the load, immediately; a shrink only if everything is known; an hour
    between two growths that are reversed.
    """
    pool, now, taken_back, grew, before = scaler(), 0.0, [], False, None
    for minutes, asked, expected, found, behind, whole in trace:
        now += minutes * MINUTE
        seen = Seen(now_unix_ms=now, asked=asked, expected=expected, found=found, lag=behind, whole=whole)
        size = pool.decide(seen).workers
        assert 1 <= size <= 12
        if asked is not None:
            assert size >= min(12, math.ceil(max(asked, expected or 0.0) / 0.5 - 1e-9))
        if before is not None and size < before:
            assert all((asked is not None, found is not None, whole))
            taken_back += [now] if grew else []
            grew = False
        grew = grew or (before is not None and size > before)
        before = size
    assert all(later - earlier >= HOUR for earlier, later in pairwise(taken_back))


def test_growth_is_at_once_and_names_its_numbers() -> None:
    pool = scaler(2)
    wanted = look(pool, 0, 1.2, expected=2.2, found=2, loading=1)
    assert wanted.workers == 5
    for number in ("1.20 s of work", "2.20 expected", "0.50 carried", "2 of 5 found, 1 loading"):
        assert number in wanted.reason


@pytest.mark.parametrize("lost", [{"asked": None}, {"found": None}, {"whole": False}])
def test_silence_is_not_zero(lost: dict[str, Any]) -> None:
    pool = scaler(6)
    for minute in range(60):
        wanted = pool.decide(Seen(**{"now_unix_ms": minute * MINUTE, "asked": 0.1, "found": 6} | lost))
    assert wanted.workers == 6
    assert "the last decision stands" in wanted.reason


def test_a_shrink_waits_until_fewer_would_do_for_the_whole_window() -> None:
    assert sizes(scaler(4), [1.9, *[0.9] * 6]) == [4, 4, 4, 4, 4, 4, 2]


def test_a_shrink_that_saves_little_waits_longer() -> None:
    """Half of four at a time; one of eight, an eighth, takes four times as long."""
    assert sizes(scaler(4), [0.9] * 7)[5:] == [2, 2]
    changes = sizes(scaler(8), [3.4] * 25)
    assert changes[19:21] == [8, 7]
    assert "a shrink by 1 of 8 waits for 1200 s" in look(scaler(8), 0, 3.4).reason


def test_what_was_sized_for_more_than_the_goal_is_made_up() -> None:
    """A pool with twice the size that carries its load answers more than the goal; later each worker is asked more.
    While a gateway is silent no value is invented.
    """
    sizing = Sizing(carries=0.2, attainment=0.96, least=20, most=60)
    pool, silent = (DemandScaler(sizing, lambda load: 1 - load / 5, Past(wanted=20)) for _ in range(2))
    for minute in range(30):
        look(pool, minute, 2.0)
        look(silent, minute, 2.0, whole=False)
    assert look(silent, 30, 8.0).workers == 40
    assert 24 <= look(pool, 30, 8.0).workers <= 34


def test_lost_moments_lengthen_the_window_and_do_not_end_it() -> None:
    asked = [0.9, 0.9, 0.9, None, 0.9, 0.9, 0.9, 0.9]
    assert sizes(scaler(4), asked)[-2:] == [4, 2]


def test_the_survivors_must_keep_the_goal() -> None:
    """Three could carry it by the mean, but the curve says what each would then answer in time."""
    sizing = msgspec.structs.replace(SIZING, spare=0.0)
    pool = DemandScaler(sizing, lambda load: 0.99 if load <= 0.4 else 0.93, Past(wanted=4))
    assert sizes(pool, [1.4] * 10)[-1] == 4
    reason = look(pool, 10, 1.4).reason
    assert "3 would answer 0.930 in time at 0.47 each, 0.96 is the goal" in reason


def test_workers_that_never_come_do_not_hold_a_shrink() -> None:
    assert sizes(scaler(8), [0.9] * 7, found=2)[-1] == 2


def test_a_growth_is_taken_back_once_an_hour() -> None:
    day = [1.9 if number % 20 < 5 else 0.4 for number in range(24 * 60)]
    changes = sizes(scaler(1), day)
    falls = [number for number in range(1, len(changes)) if changes[number] < changes[number - 1]]
    assert 12 <= len(falls) <= 24
    assert all(later - earlier >= 60 for earlier, later in pairwise(falls))


def test_a_backlog_unseen_by_gateways_grows_the_pool_within_a_bound_of_its_current_size() -> None:
    wanted = look(scaler(2), 0, 0.0, lag=10_000, found=2)
    assert wanted.workers == 4
    assert "10,000 requests are behind" in wanted.reason
    assert look(scaler(2), 0, None, lag=150, found=2).workers == 3, "a gateway's silence does not hide it"


def test_the_bounds_are_reasons_too() -> None:
    assert "12 is the most" in look(scaler(2), 0, 60.0).reason
    assert sizes(scaler(2, least=0), [0.0] * 7)[-1] == 0
    assert "1 is the least" in look(scaler(1), 0, 0.0).reason


def test_the_first_size_is_what_is_there_and_a_new_leader_goes_on_where_the_last_stood() -> None:
    assert look(scaler(), 0, 0.1, found=5).workers == 5
    records = [
        ScalingRecord(pool="main", unix_ms=at * 60_000, kind="change", wanted=size, found=2, reason="")
        for at, size in ((0, 2), (1, 4), (30, 3))
    ]
    past = Past.of(records)
    assert (past.wanted, past.grew, past.taken_back_unix_ms) == (3, False, 30 * MINUTE)


@given(st.lists(st.floats(0.1, 3.0), min_size=1, max_size=40).map(sorted))
def test_so_many_stand_by_beyond_what_the_work_needs(asked: list[float | None]) -> None:
    """And what they answer more buys no smaller fleet."""
    alone, beside = sizes(scaler(), asked), sizes(scaler(standby=2), asked)
    assert [more - size for size, more in zip(alone, beside, strict=True)] == [2] * len(asked)


def test_the_reason_says_who_stands_by() -> None:
    assert "2 to stand by" in look(scaler(standby=2), 0, 1.9).reason
