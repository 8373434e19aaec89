"""The simulated fleet: what its machines cost, who answers what, and what its scalers see."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.fleet.curve import Curve
from ops.lab.fleet.hpa import Behaviour
from ops.lab.fleet.load import DemandTrace, scaled, shares
from ops.lab.fleet.pool import Pool, num_turns
from ops.lab.fleet.rivals import (
    Clairvoyant,
    DynamoReactive,
    HpaOnBusy,
    KedaOnLag,
    KnativeOnConcurrency,
    SaturationOfLlmd,
)
from ops.lab.fleet.simulator import FleetSimulator
from ops.lab.fleet.watch import Watch
from ops.scaling.autoscale.scaler import Seen, Wanted
from shared.errors import SettingsError

_COLD_MS = 5_000.0


@given(st.lists(st.tuples(st.floats(0, 20_000), st.integers(0, 9)), max_size=12))
def test_a_machine_costs_from_its_start_until_it_ends(steps: list[tuple[float, int]]) -> None:
    pool, now = Pool.warm(3, _COLD_MS), 0.0
    spent, size = 0.0, 3
    for after, wanted in steps:
        spent += size * after
        now += after
        for machine in pool.resize(wanted, now)[1]:
            if machine.ended_ms is None:
                pool.end(machine, now)
        size = wanted
        assert len(pool.kept) == size
        assert pool.serving(now) <= size
    assert pool.cost_ms(now) == pytest.approx(spent)


def test_a_machine_that_does_not_serve_yet_leaves_first() -> None:
    pool = Pool.warm(2, _COLD_MS)
    (loading,), _ = pool.resize(3, 1_000.0)
    assert pool.resize(2, 2_000.0) == ([], [loading])
    assert loading.ended_ms == 2_000.0
    assert pool.serving(10_000.0) == 2


def test_each_change_of_direction_is_counted() -> None:
    assert num_turns([(0, 3), (1, 2), (2, 4), (3, 5), (4, 4), (5, 3), (6, 4), (7, 1)]) == 4
    assert num_turns([(0, 3), (1, 4), (2, 5)]) == 0


class _Steps:
    """Wants these sizes, one every ten seconds."""

    name = "steps"
    every_ms = 10_000.0

    def __init__(self, *sizes: int) -> None:
        self.sizes = list(sizes)
        self.seen: list[Seen] = []

    def decide(self, seen: Seen) -> Wanted:
        self.seen.append(seen)
        return Wanted(workers=self.sizes.pop(0) if len(self.sizes) > 1 else self.sizes[0], reason="")


def test_the_busiest_minute_asks_what_was_said() -> None:
    values = [10.0, None, 30.0, 20.0]
    load = scaled("any", values, 600, peak_per_s=90.0, tick_s=5, seed=1)
    assert load.per_s.max() == pytest.approx(90.0, rel=0.02)
    assert load.per_s[120 + 60] == pytest.approx(60.0, rel=0.02)  # between those that were recorded
    bursty = scaled("m-mid", values, 600, peak_per_s=90.0, tick_s=5, seed=1)
    assert bursty.per_s.std() > load.per_s.std()


@given(st.integers(1, 40), st.integers(1, 60))
def test_partitions_are_whole(workers: int, partitions: int) -> None:
    assert sum(shares(partitions, workers)) == pytest.approx(1.0)


def _seen(**more: float) -> Seen:
    return Seen(now_unix_ms=0.0, asked=None, found=4, **more)  # type: ignore[arg-type]


def test_keda_wants_a_worker_for_each_ten_of_lag_and_is_blind_to_what_is_turned_away() -> None:
    keda = KedaOnLag(behaviour=Behaviour(least=1, most=24))
    assert keda.decide(_seen(lag=60)).workers == 6
    assert keda.decide(_seen(lag=64)).workers == 6


def test_an_autoscaler_on_utilisation_waits_before_it_shrinks() -> None:
    hpa = HpaOnBusy(behaviour=Behaviour(least=1, most=24))
    assert hpa.decide(_seen(busy=1.0)).workers == 5
    assert hpa.decide(_seen(busy=0.2)).workers == 4


def test_knative_wants_a_worker_for_each_so_many_in_flight_and_shrinks_no_further_than_to_a_half() -> None:
    knative = KnativeOnConcurrency(target=10.0, least=1, most=24)
    assert knative.decide(_seen(lag=55)).workers == 6
    assert KnativeOnConcurrency(target=10.0, least=1, most=24).decide(_seen(lag=5)).workers == 2


def test_knative_keeps_what_a_panic_asked_for_until_a_minute_after() -> None:
    knative = KnativeOnConcurrency(target=10.0, least=1, most=24)
    sizes = [
        knative.decide(Seen(now_unix_ms=at * 1_000.0, asked=None, found=4, lag=100 if at < 10 else 30)).workers
        for at in range(0, 140, 2)
    ]
    assert sizes[:35] == [10] * 35
    assert sizes[-1] == 3


@pytest.mark.parametrize(
    ("lag", "waiting", "loading", "wanted"),
    [(47, 0, 0, 5), (44, 0, 0, 4), (47, 0, 1, 5), (20, 9, 0, 5), (16, 0, 0, 3)],
)
def test_llmd_grows_where_little_kv_or_queue_is_spare(lag: int, waiting: int, loading: int, wanted: int) -> None:
    """Of 64 slots 0.73 and 0.69 are used; the threshold is 0.8."""
    llmd = SaturationOfLlmd(behaviour=Behaviour(least=1, most=24), slots=16)
    assert llmd.decide(_seen(lag=lag, waiting=waiting, loading=loading)).workers == wanted


def test_llmd_shrinks_after_the_five_minutes_of_an_autoscaler_by_which_it_is_followed() -> None:
    llmd = SaturationOfLlmd(behaviour=Behaviour(least=1, most=24), slots=16)
    sizes = [
        llmd.decide(Seen(now_unix_ms=at * 30_000.0, asked=None, found=4, lag=16 if at else 44)).workers
        for at in range(20)
    ]
    assert (sizes[10], sizes[-1]) == (4, 3)


class _Flat:
    def first_token_ms(self, running: float, waiting: float) -> float:
        return 100.0 + 100.0 * waiting

    def token_ms(self, running: float) -> float:
        return 10.0 + running


@pytest.mark.parametrize(
    ("lag", "waiting", "loading", "wanted"),
    [(40, 40, 0, 5), (40, 40, 1, 5), (120, 0, 0, 5), (16, 8, 0, 3), (24, 12, 0, 4)],
)
def test_dynamo_grows_by_one_and_shrinks_where_the_survivors_keep_both(
    lag: int, waiting: int, loading: int, wanted: int
) -> None:
    """Loading: it only looks. The last: 4 wait at each of the survivors, 400 ms of (500 - 100) · 0.8."""
    planner = DynamoReactive(latencies=_Flat(), first_token_ms=500, token_ms=30, least=1, most=24)
    assert planner.decide(_seen(lag=lag, waiting=waiting, loading=loading)).workers == wanted


def test_a_clairvoyant_starts_a_worker_before_it_is_needed_and_keeps_one_that_will_be() -> None:
    clairvoyant = Clairvoyant(needed=lambda ms: 5 if 30_000 <= ms < 40_000 else 2, cold_start_ms=10_000, every_ms=5_000)
    sizes = [clairvoyant.decide(Seen(now_unix_ms=at, asked=None, found=2)).workers for at in range(0, 60_000, 5_000)]
    assert sizes == [2, 2, 2, 2, 5, 5, 5, 5, 2, 2, 2, 2]


CURVE = Curve(
    per_s=8.0,
    loads=(0.5, 1.0, 2.0),
    in_time=(1.0, 0.9, 0.5),
    busy=(0.5, 1.0, 1.0),
    running=(2.0, 8.0, 16.0),
    waiting=(0.0, 1.0, 8.0),
    spread=(1.0, 2.0, 1.0),
)


def test_a_worker_carries_the_load_at_which_the_goal_is_kept() -> None:
    assert CURVE.carries(0.95) == pytest.approx(0.75)
    assert CURVE.carries(0.5) == pytest.approx(2.0)
    assert CURVE.at(4.0) == pytest.approx(0.25)  # as many as at 2, of twice as many
    with pytest.raises(SettingsError, match="--goal"):
        Curve(per_s=8.0, loads=(0.5,), in_time=(0.9,), busy=(0,), running=(0,), waiting=(0,), spread=(0,)).carries(0.95)


def test_a_fleet_answers_what_the_curve_says_of_those_that_serve() -> None:
    load = DemandTrace(name="steady", tick_ms=5_000.0, per_s=np.full(12, 32.0))
    scaler = _Steps(4)
    played = FleetSimulator(
        load=load, scaler=scaler, pool=Pool.warm(2, 10_000.0), watch=Watch(work_ms=125.0), curve=CURVE, seed=1
    ).run()
    shares_in_time = [answered / asked for answered, asked in zip(played.in_time, played.asked, strict=True)]
    assert shares_in_time == pytest.approx([0.5] * 3 + [0.9] * 9)
    assert [seen.found for seen in scaler.seen[:3]] == [2, 2, 4]
    assert played.worker_hours * 3_600 == pytest.approx(2 * 5 + 4 * 55)
