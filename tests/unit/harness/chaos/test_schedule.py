"""Faults are drawn from a seed, and never more than what should be survived."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SettingsError
from tests.chaos.faults.schedule import (
    CLOCKS,
    GATEWAYS,
    INSIDE,
    MEMBERS,
    Fault,
    Kind,
    burst_factor,
    clock_off_s,
    counts_for,
    draw,
    groups,
    member_of,
    parse_faults,
    taken_by,
    with_bursts,
)

CLIENTS = 40


@given(seed=st.integers(0, 2**32), minutes=st.floats(0.5, 60), brokers=st.sampled_from([1, 3]))
def test_the_same_seed_gives_the_same_faults(seed: int, minutes: float, brokers: int) -> None:
    """In order of time, of the numbers asked for, within the run."""
    counts, among = counts_for(minutes, brokers=brokers), groups(clients=CLIENTS, brokers=brokers)
    faults = draw(seed, minutes * 60, counts, among)
    assert faults == draw(seed, minutes * 60, counts, among)
    assert faults == sorted(faults, key=lambda fault: fault.at_s)
    assert {kind: sum(fault.kind is kind for fault in faults) for kind in Kind} == counts
    assert all(0 < fault.at_s < minutes * 60 for fault in faults)


@given(seed=st.integers(0, 2**32), brokers=st.sampled_from([1, 3]))
def test_one_of_a_kind_is_down_at_a_time(seed: int, brokers: int) -> None:
    """Of two workers, two gateways and three brokers the next is hit when the one before has had its time."""
    counts = parse_faults(
        "worker=8,rebalance=4,gateway=9,redis=8,broker=2,disk-full=1,latency=3,timeout=3,slow-close=2,roll=7,"
        "slow-kafka=2,slow-redis=2,partition=3,partition-out=2,partition-in=2,burst=5,noise=9,clock-skew=4,clock-wrong=3,"
        "hang=3"
    )
    among = groups(clients=CLIENTS, brokers=brokers)
    faults = draw(seed, 120, counts, among)
    for group in among:
        of_group = [fault for fault in faults if fault.kind in group.kinds]
        for before, after in pairwise(of_group):
            assert after.at_s - before.at_s >= before.down_s + group.recovery_s - 0.002
        assert all(0 <= fault.target < group.targets for fault in of_group)
        assert all(group.down_s[0] <= fault.down_s <= group.down_s[1] for fault in of_group)


@given(seed=st.integers(0, 2**32), rounds=st.integers(1, 20))
def test_a_deployment_has_time_to_end_while_the_load_lasts(seed: int, rounds: int) -> None:
    """Each of its rounds, and none begins before the one before had its time."""
    among = groups(clients=CLIENTS, brokers=1)
    duration_s = 2 + 10 * rounds + 5
    times_s = [fault.at_s for fault in draw(seed, duration_s, parse_faults(f"roll={rounds}"), among)]
    assert len(times_s) == rounds
    assert all(after - before >= 10 - 1e-9 for before, after in pairwise([*times_s, duration_s]))


def test_what_is_not_of_every_run_happens_only_where_it_is_asked_for() -> None:
    """A broker that is alone is not killed either."""
    asked_for = {Kind.HANG, Kind.ROLL, *INSIDE, Kind.DISK_FULL, Kind.BURST, Kind.NOISE, *CLOCKS}
    assert {kind for kind, count in counts_for(60, brokers=3).items() if not count} == asked_for
    assert {kind for kind, count in counts_for(60, brokers=1).items() if not count} == asked_for | {Kind.BROKER}
    assert parse_faults(f"{Kind.HANG}=2")[Kind.HANG] == 2


def test_more_faults_of_one_kind_leave_the_others_where_they_were() -> None:
    among = groups(clients=CLIENTS, brokers=3)
    few, many = (draw(1, 60, parse_faults(f"worker=2,redis=3,cut={cuts}"), among) for cuts in (1, 50))
    assert [fault for fault in few if fault.kind is not Kind.CUT] == [
        fault for fault in many if fault.kind is not Kind.CUT
    ]


@pytest.mark.parametrize("text", ["worker", "worker=", "worker=-1", "worker=1.5", "printer=1", "WORKER=1", "worker 1"])
def test_faults_that_cannot_be_read_are_named(text: str) -> None:
    with pytest.raises(SettingsError, match=r"write kind=count"):
        parse_faults(text)


def test_faults_that_find_no_room_are_refused_with_the_remedy() -> None:
    with pytest.raises(SettingsError, match=r"worker=50 in 60 s: .*raise --minutes"):
        draw(1, 60, parse_faults("worker=50"), groups(clients=CLIENTS, brokers=1))


# --- bursts and clocks


@given(
    seed=st.integers(0, 2**32),
    rate=st.sampled_from([5.0, 20.0, 40.0]),
    faults=st.lists(
        st.builds(Fault, st.floats(0, 50), st.just(Kind.BURST), st.integers(0, 3), st.floats(1, 5)), max_size=3
    ),
)
def test_a_burst_is_five_to_eight_times_the_rate_for_as_long_as_it_lasts(
    seed: int, rate: float, faults: list[Fault]
) -> None:
    """What was asked anyway is asked all the same; other faults add nothing."""
    assert [burst_factor(target) for target in range(4)] == [5, 6, 7, 8]
    even = [number / rate for number in range(int(60 * rate))]
    others = [Fault(1.0, Kind.WORKER, 0, 1.0)]
    times_s = with_bursts(even, [*faults, *others], rate=rate, seed=seed)
    assert times_s == sorted(times_s) == with_bursts(even, [*faults, *others], rate=rate, seed=seed)
    more = list(times_s)
    for time_s in even:
        more.remove(time_s)
    assert len(more) == sum(round((burst_factor(fault.target) - 1) * rate * fault.down_s) for fault in faults)
    assert all(any(fault.at_s <= one <= fault.at_s + fault.down_s for fault in faults) for one in more)


@pytest.mark.parametrize("kind", CLOCKS, ids=lambda kind: kind.value)
def test_every_processs_clock_may_be_ahead_and_behind(kind: Kind) -> None:
    (group,) = [group for group in groups(clients=CLIENTS, brokers=1) if kind in group.kinds]
    reached = {(member_of(target), clock_off_s(target)) for target in range(group.targets)}
    sizes = (1, 60, 3_600)
    assert reached == {(member, way * size) for member in range(MEMBERS) for way in (1, -1) for size in sizes}


@pytest.mark.parametrize("target", range(2 * MEMBERS))
def test_who_is_started_anew_with_a_wrong_clock_is_not_killed_meanwhile(target: int) -> None:
    """Nor does that clock jump; another's may."""
    taken = set(taken_by(Fault(0.0, Kind.CLOCK_WRONG, target, 3.0)))
    killed = Kind.GATEWAY if member_of(target) < GATEWAYS else Kind.WORKER
    assert taken & set(taken_by(Fault(0.0, killed, 0, 1.0)))
    for other in range(2 * MEMBERS):
        jumping = taken_by(Fault(0.0, Kind.CLOCK_SKEW, other, 1.0))
        assert bool(taken & set(jumping)) == (member_of(other) == member_of(target))


@pytest.mark.parametrize(
    ("one", "other"),
    [(Kind.REBALANCE, Kind.WORKER), (Kind.HANG, Kind.WORKER), (Kind.DISK_FULL, Kind.BROKER)],
)
def test_what_hits_the_same_takes_turns_whatever_it_does(one: Kind, other: Kind) -> None:
    assert taken_by(Fault(0.0, one, 0, 1.0)) == taken_by(Fault(0.0, other, 0, 1.0))
    assert taken_by(Fault(0.0, one, 0, 1.0)) != taken_by(Fault(0.0, Kind.REDIS, 0, 1.0))
