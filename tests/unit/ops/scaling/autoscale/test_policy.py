"""The size of a pool: it grows immediately, shrinks when the evidence is sure, and treats a missing report never as
zero."""

import math
from itertools import pairwise
from random import Random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.scaling.autoscale.evidence import Evidence, Pool
from ops.scaling.autoscale.policy import DemandScaler, Past, Sizing
from ops.scaling.autoscale.scaler import Seen, Wanted
from shared.wire.scaling import BucketDemand, DemandReport, ScalingRecord

SIZING = Sizing(
    carries=0.5, attainment=0.96, least=1, most=12, mean_ms=60_000.0, stabilisation_ms=300_000.0, hold_ms=3_600_000.0
)
MINUTE, HOUR = 60_000.0, 3_600_000.0


def in_time(load: float) -> float:
    return 1.0 if load <= 0.5 + 1e-9 else 0.5


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
    """Within the bounds; always enough workers for the load; a shrink only with all measurements present; twenty
    minutes between two growths that are taken back."""
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
    assert all(later - earlier >= HOUR / 3 for earlier, later in pairwise(taken_back))


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
    """Half of four immediately; one of eight, an eighth, four times as long."""
    assert sizes(scaler(4), [0.9] * 7)[5:] == [2, 2]
    changes = sizes(scaler(8), [3.2] * 25)
    assert changes[19:21] == [8, 7]
    assert "a shrink by 1 of 8 waits for 1200 s" in look(scaler(8), 0, 3.2).reason


POINTS = ((0.0, 1.0), (0.4, 0.999), (0.7, 0.986), (0.87, 0.96), (1.0, 0.93), (1.5, 0.76), (3.0, 0.44), (1e9, 0.0))


def curve(load: float) -> float:
    """Return a worker's share in time: 0.96 at 0.87, as a measured one's."""
    (x0, y0), (x1, y1) = next(pair for pair in pairwise(POINTS) if load <= pair[1][0])
    return y0 + (y1 - y0) * (load - x0) / (x1 - x0)


LEVELS = (0.1, 0.5, 0.95, 1.0, 1.02, 1.7, 2.0, 2.9, 3.45, 5.0, 7.6, 8.01, 11.5, 17.3, 24.0)


@pytest.mark.parametrize("leader_hours", [24, 4])
def test_constant_demand_changes_nothing_at_any_level(leader_hours: int) -> None:
    """For 0.1 to 24 workers, for a day after eight hours to settle (the aim is known after six), with any leader and a
    cold start of two minutes."""
    moved = []
    for workers in LEVELS:
        sizing = Sizing(carries=0.87, most=30)
        pool, records, found, late = DemandScaler(sizing, curve), list[ScalingRecord](), math.ceil(workers) + 1, 0
        for minute in range(0, 32 * 60, 2):
            now = minute * MINUTE
            if minute and minute % (leader_hours * 60) == 0:
                pool = DemandScaler(sizing, curve, Past.of(records))
            judged, share = 600, curve(workers * 0.87 / max(found, 1))
            before = pool.past.wanted
            seen = Seen(
                now_unix_ms=now, asked=workers * 0.87, found=found, judged=judged, in_time=round(judged * share)
            )
            size = pool.decide(seen).workers
            found, late = (late or size), size
            records.append(
                ScalingRecord(
                    pool="main", unix_ms=int(now), kind="minute", wanted=size, found=found, reason="", asked=seen.asked,
                    trust=pool.trust.factor,
                )
            )  # fmt: skip
            if minute > 480 and size != before:
                moved.append((workers, minute, before, size))
    assert moved == []


@pytest.mark.parametrize("wrong", [0.25, 0.5, 0.75, 1.0, 1.25, 2.0, 4.0])
@pytest.mark.parametrize("change_min", [0, 300])
def test_a_wrong_belief_is_corrected_within_half_an_hour(wrong: float, change_min: int) -> None:
    """From the start of a promotion that needs four times as much, or when workers become this much slower in the
    middle; a new leader an hour later continues with the learned values."""
    sizing = Sizing(carries=0.87 * (wrong if change_min == 0 else 1.0), most=60)
    random, records = Random(1), list[ScalingRecord]()

    def believed(load: float) -> float:
        return curve(load / wrong) if change_min == 0 else curve(load)

    pool, sizes, judged, in_time = DemandScaler(sizing, believed), [3] * 3, 0, 0
    for minute in range(change_min + 150):
        if minute == change_min + 60:
            pool = DemandScaler(sizing, believed, Past.of(records))
        asked = (2.0 if minute < max(change_min, 5) and change_min == 0 else 8.0) * random.uniform(0.97, 1.03)
        slower = wrong if change_min and minute >= change_min else 1.0
        found = sizes[-3]  # a cold start of two minutes
        came = round(asked * 60 / 0.12)
        kept = round(came * curve(asked * slower / found))
        sizes.append(
            pool.decide(Seen(now_unix_ms=minute * MINUTE, asked=asked, found=found, judged=came, in_time=kept)).workers
        )
        records.append(
            ScalingRecord(
                pool="main", unix_ms=round(minute * MINUTE), kind="minute", wanted=sizes[-1], found=found, reason="",
                asked=asked, trust=pool.trust.factor,
            )
        )  # fmt: skip
        if minute >= change_min + 30:
            judged, in_time = judged + came, in_time + kept
    assert in_time >= 0.96 * judged


def test_lost_moments_lengthen_the_window_and_do_not_end_it() -> None:
    asked = [0.9, 0.9, 0.9, None, 0.9, 0.9, 0.9, 0.9]
    assert sizes(scaler(4), asked)[-2:] == [4, 2]


def test_a_shrink_needs_survivors_with_something_to_spare() -> None:
    """Two would carry it, and would have to grow again with the next few requests."""
    pool = scaler(3)
    assert sizes(pool, [0.98] * 30)[-1] == 3
    assert "2 would have 0.49 of 0.50 carried each, less than 8% to spare" in look(pool, 30, 0.98).reason
    assert sizes(scaler(3), [0.9] * 30)[-1] == 2


@pytest.mark.parametrize("asked", [0.88, 0.9, 0.92])
def test_chance_in_constant_demand_seldom_changes_the_size(asked: float) -> None:
    """A worker that may just be asked this much, and the chance of few requests, for two days."""
    moved = 0
    for seed in (0, 1):
        random = Random(seed)
        pool = DemandScaler(Sizing(carries=0.9, most=30), lambda load: min(1.0, 0.891 / load), Past(wanted=2))
        found = sizes(pool, [random.gauss(asked, 0.035) for _ in range(32 * 60)])
        moved += sum(before != after for before, after in pairwise(found[480:]))
    assert moved <= 3


def test_a_burst_is_carried_by_the_spare_and_a_lasting_load_by_the_goal() -> None:
    """For a few minutes each worker may be asked more than keeps the goal; for longer there are more workers."""
    pool = DemandScaler(Sizing(carries=0.87, most=30), curve, Past(wanted=4))
    assert sizes(pool, [3.0] * 30 + [3.8] * 5)[-1] == 4
    assert sizes(pool, [3.8] * 40)[-1] == 5


def test_workers_that_never_come_do_not_hold_a_shrink() -> None:
    assert sizes(scaler(8), [0.9] * 7, found=2)[-1] == 2


@pytest.mark.parametrize(("calm", "minutes"), [(0.4, 20), (3.2, 60)])
def test_a_growth_is_taken_back_once_an_hour_and_a_large_one_three_times(calm: float, minutes: int) -> None:
    """Each twenty minutes a burst of five needs 8 workers; between them one or 7 would do."""
    day = [3.9 if number % 20 < 5 else calm for number in range(24 * 60)]
    changes = sizes(scaler(1, stabilisation_ms=60_000.0), day)
    falls = [number for number in range(1, len(changes)) if changes[number] < changes[number - 1]]
    assert len(falls) >= 24 * 60 / minutes / 2
    assert all(later - earlier >= minutes for earlier, later in pairwise(falls))


def test_a_backlog_that_no_gateway_sees_wants_more_and_is_bounded_by_who_is_there() -> None:
    wanted = look(scaler(2), 0, 0.0, lag=10_000, found=2)
    assert wanted.workers == 4
    assert "10,000 requests are behind" in wanted.reason
    assert look(scaler(2), 0, None, lag=150, found=2).workers == 3, "a gateway's silence does not hide it"


def test_the_bounds_are_reasons_too() -> None:
    assert "12 is the most" in look(scaler(2), 0, 60.0).reason
    assert sizes(scaler(2, least=0), [0.0] * 7)[-1] == 0
    assert "1 is the least" in look(scaler(1), 0, 0.0).reason
    bounded = look(scaler(1, least=2, most=1), 0, 0.0)
    assert bounded.workers == 1
    assert bounded.reason.endswith("2 is the least, but 1 the most that the topics' partitions allow")


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


def test_a_pool_of_none_gets_a_worker_when_something_is_asked_and_none_when_all_is_calm() -> None:
    """No worker was ever there, so no worker has a price for a question."""
    evidence, pool = Evidence(Pool()), scaler(least=0)
    evidence.listens_unix_ms = 0.0
    sizes = []
    for minute in range(12 * 60):
        requests = 3 if minute >= 2 else 0
        counts = {"champion": {"short": BucketDemand(requests=requests)}}
        now = (minute + 1) * MINUTE
        report = DemandReport(gateway_id="g", unix_ms=int(now), since_unix_ms=int(MINUTE), asked=counts)
        evidence.hear_gateway("g", report, now)
        sizes.append(pool.decide(evidence.seen(now, expected=None, lag=0)).workers)
    assert sizes[:3] == [0, 0, 1]
    assert sizes[-1] == 0


@pytest.mark.parametrize("asked_ms", [1, 500, 1_000])
def test_a_pool_of_none_is_wanted_within_two_seconds_of_a_question(asked_ms: int) -> None:
    """A gateway reports once a second, and 999 ms later the autoscaler decides."""
    evidence, pool = Evidence(Pool()), scaler(least=0)
    evidence.listens_unix_ms = 0.0
    wanted = {}
    for now_ms in range(10_000, 40_000, 1_000):
        counts = {"champion": {"short": BucketDemand(requests=int(now_ms >= 30_000 + asked_ms))}}
        report = DemandReport(gateway_id="g", unix_ms=now_ms, since_unix_ms=0, asked=counts)
        evidence.hear_gateway("g", report, now_ms)
        decided_ms = now_ms + 999
        wanted[decided_ms] = pool.decide(evidence.seen(decided_ms, expected=None, lag=0)).workers
    first_ms = min(at_ms for at_ms, workers in wanted.items() if workers)
    assert 0 < first_ms - 30_000 - asked_ms <= 2_000
