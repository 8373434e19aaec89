"""A cheap pool is filled before a dear one, and the dear one steps in where cheap machines cannot be had."""

import math
from dataclasses import dataclass, field

import msgspec
import pytest

from ops.scaling.autoscale.evidence import Evidence, Pool
from ops.scaling.autoscale.policy import DemandScaler, Sizing
from ops.scaling.autoscale.scaler import Seen
from ops.scaling.autoscale.variants import Variants
from shared.wire.scaling import BucketDemand, DemandReport, ScalingRecord
from tests.support.builders.gateway import report

MINUTE = 60_000.0
NAMES = ("small", "large", "huge")
CARRIES = 0.5
# The machine time of a unit of demand: a large machine is four times as fast as a small one.
COST = {"small": 1.0, "large": 0.25, "huge": 0.125}
MOST = {"small": 6, "large": 4, "huge": 2}


def record(pool: str, at_ms: float, *, wanted: int, found: int | None = None, asked: float | None) -> ScalingRecord:
    found = wanted if found is None else found
    limits = {"carries": CARRIES, "most": MOST[pool]}
    return ScalingRecord(
        pool=pool, unix_ms=int(at_ms), kind="minute", wanted=wanted, found=found, reason="", asked=asked, **limits
    )


def rest(*records: ScalingRecord, at_ms: float = 0.0, pool: str = "large") -> float | None:
    variants = Variants(pool, NAMES)
    for each in records:
        variants.hear(each, each.unix_ms)
    return variants.rest(at_ms)


def test_the_cheapest_pool_is_for_everything() -> None:
    assert rest(pool="small") == 1.0


@pytest.mark.parametrize(("asked", "left"), [(0.0, 0.0), (2.9, 0.0), (3.0, 0.0), (6.0, 0.5), (30.0, 0.9)])
def test_a_pool_is_for_what_the_cheaper_one_cannot_carry_at_its_most(asked: float, left: float) -> None:
    assert rest(record("small", 0, wanted=6, asked=asked)) == pytest.approx(left)


def test_the_third_pool_is_for_what_both_cannot_carry() -> None:
    """Of 12 the small ones leave 9; those are 2.25 of large machines, which carry 2."""
    records = record("small", 0, wanted=6, asked=12.0), record("large", 0, wanted=4, asked=2.25)
    assert rest(*records, pool="huge") == pytest.approx(0.75 * (1 - 2 / 2.25))


@pytest.mark.parametrize(
    "known", [(), (record("small", 0, wanted=6, asked=None),), (record("large", 0, wanted=1, asked=1),)]
)
def test_silence_of_a_cheaper_pool_is_not_zero(known: tuple[ScalingRecord, ...]) -> None:
    assert rest(*known) is None
    evidence = Evidence(Pool(name="large"), Variants("large", NAMES))
    for at_ms in (0.0, MINUTE):
        counts = {"champion": {"short": BucketDemand(10, 77.0 * at_ms)}}
        written = DemandReport(gateway_id="g", unix_ms=int(at_ms), since_unix_ms=0, asked=counts)
        evidence.hear_gateway("g", written, at_ms)
    for each in known:
        evidence.variants.hear(each, MINUTE)  # type: ignore[union-attr]
    seen = evidence.seen(MINUTE, expected=None, lag=0)
    wanted = DemandScaler(Sizing(carries=CARRIES, most=4), curve).decide(seen)
    assert (seen.asked, seen.silent_pool) == (None, "small")
    assert "the autoscaler of small reports no demand, so that the last decision stands" in wanted.reason


def test_a_record_that_is_old_says_nothing() -> None:
    small = record("small", 0, wanted=6, asked=6.0)
    assert rest(small, at_ms=3 * MINUTE) == 0.5
    assert rest(small, at_ms=3 * MINUTE + 1) is None


def test_machines_that_do_not_come_for_five_minutes_are_not_counted() -> None:
    short = [record("small", minute * MINUTE, wanted=5, found=2, asked=2.5) for minute in range(6)]
    assert rest(*short[:5], at_ms=4.9 * MINUTE) == 0.0
    assert rest(*short, at_ms=5 * MINUTE) == pytest.approx(0.6)
    came = record("small", 5.1 * MINUTE, wanted=5, asked=2.5)
    assert rest(*short, came, at_ms=5.2 * MINUTE) == 0.0


def test_cheaper_pools_have_their_partitions() -> None:
    variants = Variants("huge", NAMES)
    for pool in ("small", "large", "huge"):
        variants.hear(record(pool, 0, wanted=1, asked=1.0), 0.0)
    assert variants.workers_before(0.0) == MOST["small"] + MOST["large"]


@pytest.mark.parametrize(("pool", "asked", "lag", "served"), [("small", 1.0, 7, 0.5), ("large", 0.0, 0, 0.125)])
def test_a_variant_prices_by_its_own_workers_and_shares_no_demand(
    pool: str, asked: float, lag: int, served: float
) -> None:
    """Two small and two large workers answer, and the small ones would be enough for all of it."""
    evidence = Evidence(Pool(name=pool), Variants(pool, NAMES))
    workers = [report(f"{name}-{one}", pool=name, service_ms=100 * COST[name]) for name in NAMES[:2] for one in (0, 1)]
    for worker in workers:
        evidence.hear_worker(worker.worker_id, worker, 0.0)
    evidence.seen(0.0, expected=None, lag=0)  # it takes the prices of its workers
    for second in range(21):
        counts = {"champion": {"short": BucketDemand(second * 10, second * 10 * 77.0)}}
        written = DemandReport(gateway_id="g", unix_ms=second * 1_000, since_unix_ms=-1_000_000, asked=counts)
        evidence.hear_gateway("g", written, second * 1_000.0)
    for worker in workers:
        evidence.hear_worker(worker.worker_id, worker, 20_000.0)
    if evidence.variants is not None:
        evidence.variants.hear(record("small", 20_000, wanted=2, asked=1.0), 20_000.0)
    seen = evidence.seen(20_000.0, expected=None, lag=7)
    assert (seen.asked, seen.lag, seen.served) == (pytest.approx(asked), lag, pytest.approx(served))


@dataclass
class Fleet:
    """Three pools and their autoscalers in virtual time; machines come a minute after they were wanted."""

    available: dict[str, int] = field(default_factory=lambda: dict(MOST))
    found: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NAMES, 0))
    minute: int = 0
    told: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """The orders of autoscalers that were given another one."""

    def __post_init__(self) -> None:
        self.variants = {name: Variants(name, self.told.get(name, NAMES)) for name in NAMES}
        self.scalers = {
            name: DemandScaler(Sizing(carries=CARRIES, least=0, most=MOST[name], backlog=0), curve) for name in NAMES
        }

    def run(self, minutes: int, demand: float) -> dict[str, int]:
        """Return the sizes that are wanted in the end."""
        for _ in range(minutes):
            self.minute += 1
            now = self.minute * MINUTE
            wanted = {}
            for name in NAMES:
                left = self.variants[name].rest(now)
                asked = None if left is None else demand * COST[name] * left
                found = self.found[name]
                wanted[name] = self.scalers[name].decide(Seen(now_unix_ms=now, asked=asked, found=found)).workers
                written = record(name, now, wanted=wanted[name], found=found, asked=asked)
                written = msgspec.structs.replace(written, variants=self.variants[name].named)
                for each in self.variants.values():
                    each.hear(written, now)
            self.found = {name: min(wanted[name], self.available[name]) for name in NAMES}
        return wanted


def curve(load: float) -> float:
    return min(1.0, max(0.0, 1.0 - 0.04 * math.exp((load - CARRIES) * 20)))


def test_demand_fills_the_cheap_pool_first_and_leaves_the_dear_one_first() -> None:
    fleet = Fleet()
    assert fleet.run(90, 2.0)["large"] == 0
    at_most = fleet.run(90, 5.0)
    assert (at_most["small"], at_most["huge"]) == (MOST["small"], 0)
    assert 1 <= at_most["large"] <= 2
    assert min(fleet.run(90, 14.0).values()) >= 1
    calm = fleet.run(24 * 60, 2.0)
    assert (calm["large"], calm["huge"]) == (0, 0)
    assert 1 <= calm["small"] <= MOST["small"]


def test_the_dear_pool_steps_in_where_cheap_machines_cannot_be_had() -> None:
    fleet = Fleet(available={**MOST, "small": 1})
    wanted = fleet.run(30, 2.0)
    assert wanted["small"] >= 4
    assert wanted["large"] >= 1
    fleet.available = dict(MOST)
    assert fleet.run(12 * 60, 2.0)["large"] == 0


@pytest.mark.parametrize(
    "told",
    [
        pytest.param({"large": ("large", "small", "huge")}, id="two pools first"),
        pytest.param({"small": ("small", "large"), "large": ("large", "small")}, id="both leave one out"),
        pytest.param({name: (name, *(other for other in NAMES if other != name)) for name in NAMES}, id="each first"),
    ],
)
def test_pools_told_different_orders_go_by_one_of_them(told: dict[str, tuple[str, ...]]) -> None:
    """One pool is sized for all of it, and each record says which orders differ."""
    fleet = Fleet(told=told)
    for pool in fleet.variants.values():
        assert pool.contradiction(0.0) == ""
    wanted = fleet.run(200, 0.4)
    assert sum(size > 0 for size in wanted.values()) == 1
    now = fleet.minute * MINUTE
    assert len({pool.order(now) for pool in fleet.variants.values()}) == 1
    said = [pool.contradiction(now) for pool in fleet.variants.values()]
    assert any(said)
    assert all(text.endswith("is used") for text in said if text)


def test_an_order_that_nobody_writes_any_more_is_forgotten() -> None:
    variants = Variants("large", ("small", "large"))
    swapped = msgspec.structs.replace(record("small", 0, wanted=1, asked=1.0), variants=("large", "small"))
    variants.hear(swapped, 0.0)
    assert variants.order(3 * MINUTE) == ("large", "small")
    assert variants.order(3 * MINUTE + 1) == ("small", "large")
