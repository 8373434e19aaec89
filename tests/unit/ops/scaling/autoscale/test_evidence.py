"""What is asked and who is there, by reports that come late, twice, from the start again, or not at all."""

import math

import msgspec
import pytest

from gateway.destination.fleet import Fleet
from ops.scaling.autoscale.basis import Basis
from ops.scaling.autoscale.building import measure_of
from ops.scaling.autoscale.evidence import Evidence, Pool
from ops.scaling.autoscale.options import RunOptions
from ops.scaling.autoscale.scaler import Seen
from shared.settings import Settings
from shared.wire.codec import decode_report, decode_scaling
from shared.wire.reports import PricedMessage, WorkerReport
from shared.wire.scaling import BucketDemand, DemandReport, ScalingRecord
from shared.wire.step_law import StepLaw
from tests.support.builders.gateway import report

NOW, SECOND = 1_000_000.0, 1_000.0


def asked(at_s: float, requests: int, work_ms: float, *, gateway: str = "g0", since_s: float = -3_600) -> DemandReport:
    """Return a gateway's counts; its clock is an hour behind ours."""
    clock = NOW - 3_600 * SECOND
    return DemandReport(
        gateway_id=gateway,
        unix_ms=int(clock + at_s * SECOND),
        since_unix_ms=int(clock + since_s * SECOND),
        asked={"champion": {"short": BucketDemand(requests, work_ms)}, "canary": {"short": BucketDemand(9_999, 9e6)}},
    )


def hear(evidence: Evidence, *reports: tuple[float, DemandReport]) -> None:
    for at_s, each in reports:
        evidence.hear_gateway(each.gateway_id, each, NOW + at_s * SECOND)


def seen(evidence: Evidence, at_s: float) -> Seen:
    return evidence.seen(NOW + at_s * SECOND, expected=None, lag=0)


def steady(
    gateway: str = "g0", *, until_s: int, per_s: int = 10, work_ms: float = 50.0
) -> list[tuple[float, DemandReport]]:
    counts = [(at, 7_000 + at * per_s) for at in range(until_s + 1)]
    return [(at, asked(at, number, number * work_ms, gateway=gateway)) for at, number in counts]


def test_demand_is_the_lanes_machine_time_per_second_by_the_senders_clocks() -> None:
    """Reports that come together after an outage, or twice, count what they say."""
    evidence = Evidence(Pool())
    reports = [each for _, each in steady(until_s=90)]
    hear(evidence, *((90.0, each) for each in (*reports, reports[-1])))
    assert seen(evidence, 90).asked == pytest.approx(0.5)
    assert seen(evidence, 90).whole


def test_a_gateway_counts_after_ten_seconds_and_one_that_starts_at_once() -> None:
    evidence = Evidence(Pool())
    hear(evidence, *steady(until_s=5))
    assert (seen(evidence, 5).asked, seen(evidence, 5).whole) == (None, False)
    hear(evidence, (6, asked(6, 60, 3_000.0, gateway="g1", since_s=0)))
    assert seen(evidence, 6).asked == pytest.approx(0.3 * sure(60))
    assert not seen(evidence, 6).whole


@pytest.mark.parametrize("wrong_s", [3_600, -3_600])
def test_a_clock_that_was_wrong_for_a_report_changes_nothing_later(wrong_s: int) -> None:
    evidence = Evidence(Pool())
    reports = steady(until_s=600)
    at_s, right = reports[60]
    reports[60] = at_s, msgspec.structs.replace(right, unix_ms=right.unix_ms + wrong_s * 1_000)
    hear(evidence, *reports)
    assert seen(evidence, 600).asked == pytest.approx(0.5)
    (gateway,) = evidence._gateways.values()
    assert len(gateway.counts.samples) < 70, "of a minute"


def test_a_surge_shows_within_seconds_and_chance_does_not() -> None:
    evidence = Evidence(Pool())
    hear(evidence, *steady(until_s=60))
    before = 7_000 + 60 * 10
    hear(evidence, *((60 + at, asked(60 + at, before + at * 40, (before + at * 40) * 50.0)) for at in range(1, 11)))
    assert seen(evidence, 70).asked == pytest.approx(2.0 * sure(400))
    few = Evidence(Pool())
    hear(few, *((at, asked(at, 3 if at > 58 else 0, 150.0 if at > 58 else 0.0)) for at in range(61)))
    assert seen(few, 60).asked == pytest.approx(0.15 / 60)


def test_a_restart_counts_from_zero_and_an_end_at_once() -> None:
    evidence = Evidence(Pool())
    hear(evidence, *steady(until_s=60), *steady("g1", until_s=60))
    assert seen(evidence, 60).asked == pytest.approx(1.0)
    hear(evidence, (62, asked(62, 10, 500.0, since_s=61)), (62, steady("g1", until_s=62)[-1][1]))
    assert seen(evidence, 62).asked == pytest.approx(0.5 + 0.5 / 60, rel=0.01)
    evidence.hear_gateway("g1", None, NOW + 62 * SECOND)
    assert seen(evidence, 62).asked == pytest.approx(0.05 * sure(10))
    assert seen(evidence, 62).whole


@pytest.mark.parametrize("started_s", [-7_200, 30], ids=["before the other", "after it"])
def test_two_gateways_with_one_id_both_count(started_s: int) -> None:
    """The id is made of the reply partition, which two gateways may have by mistake."""
    evidence = Evidence(Pool())
    for at in range(max(started_s, 0), 151):
        hear(evidence, (at, asked(at, 7_000 + at * 10, (7_000 + at * 10) * 50.0)))
        number = (at - started_s) * 10
        hear(evidence, (at, asked(at, number, number * 50.0, since_s=started_s)))
    assert seen(evidence, 150).asked == pytest.approx(1.0)
    assert seen(evidence, 150).whole


def test_a_silent_gateway_makes_what_is_asked_the_least_and_is_forgotten_in_a_minute() -> None:
    evidence = Evidence(Pool())
    hear(evidence, *steady(until_s=60), *steady("g1", until_s=130))
    assert (seen(evidence, 110).asked, seen(evidence, 110).whole) == (pytest.approx(0.5), False)
    assert seen(evidence, 130).whole
    assert seen(evidence, 190).asked is None


def test_requests_without_a_price_get_the_last_that_workers_reported() -> None:
    evidence = Evidence(Pool(), service_ms={"short": 40.0})
    hear(evidence, *steady(until_s=60, work_ms=0.0))
    assert seen(evidence, 60).asked == pytest.approx(0.4)


def sure(requests: int) -> float:
    """Return the share of this few requests in ten seconds that exceeds chance."""
    return 1 - 2 / math.sqrt(requests)


def worker(name: str, **fields: object) -> WorkerReport:
    return report(name, **fields)  # type: ignore[arg-type]


def test_workers_of_the_pool_are_found_while_they_report() -> None:
    evidence = Evidence(Pool(buckets=("short", "medium")))
    assert seen(evidence, 0).found is None, "nothing is read yet"
    evidence.listens_unix_ms = NOW
    assert seen(evidence, 1).found is None, "they have had no time to report"
    assert seen(evidence, 4).found == 0
    for name, buckets in (("w1", ("medium", "short")), ("w2", ("short", "medium")), ("w3", ("long",))):
        evidence.hear_worker(name, worker(name, buckets=buckets, waiting=3, service_ms=80.0), NOW + 4 * SECOND)
    now = seen(evidence, 5)
    assert (now.found, now.waiting, now.whole, evidence.service_ms) == (2, 6, True, {"short": 80.0, "medium": 80.0})
    evidence.hear_worker("w1", None, NOW + 5 * SECOND)
    assert (seen(evidence, 5).found, seen(evidence, 5).whole) == (1, True)
    assert seen(evidence, 20).found is None, "all are silent: Kafka may be"
    assert (seen(evidence, 70).found, seen(evidence, 70).whole) == (0, True)


def test_the_cold_start_is_learned_of_those_that_were_wanted() -> None:
    evidence = Evidence(Pool())
    evidence.hear_worker("w1", worker("w1"), NOW)
    evidence.change(1, 3, NOW)
    assert seen(evidence, 0).loading == 2
    evidence.hear_worker("w1", worker("w1"), NOW + SECOND)
    evidence.hear_worker("w2", worker("w2"), NOW + 7 * SECOND)
    evidence.change(3, 2, NOW + 8 * SECOND)
    evidence.hear_worker("w3", worker("w3"), NOW + 9 * SECOND)
    assert list(evidence.cold_starts_ms) == [7 * SECOND]


ANSWERED_NOTHING = {"short": 0.0, "medium": 0.0, "long": 0.0}


def through_the_log(record: PricedMessage) -> bytes:
    """Return a record as a version writes it that has a 0 for what it has not measured."""
    return msgspec.msgpack.encode(msgspec.to_builtins(record) | {"service_ms": ANSWERED_NOTHING})


def test_a_worker_that_has_answered_nothing_has_no_price_at_any_reader() -> None:
    """A 0 is no measured time: by it a worker would carry any load, and requests would ask nothing."""
    kept = {"short": 40.0}
    found = decode_report(through_the_log(worker("w1")))
    evidence = Evidence(Pool(), service_ms=dict(kept))
    evidence.hear_worker("w1", found, NOW)
    seen(evidence, 1)
    assert evidence.service_ms == kept
    record = ScalingRecord(pool="main", unix_ms=1, kind="minute", wanted=1, found=1, reason="test")
    assert decode_scaling(through_the_log(record)).service_ms == {}
    assert worker("w1", service_ms=0.0).service_ms == {}
    lanes = Fleet(ttl_ms=3_000.0)
    for each in (found, worker("w2", service_ms=40.0)):
        lanes.observe(each, 0.0)
    assert set(lanes.mean_service_ms().values()) == {40.0}


def test_a_pool_that_has_answered_nothing_is_sized_as_a_measured_cpu() -> None:
    """It reports no slots either, and a law by which nothing takes time."""
    evidence = Evidence(Pool())
    evidence.hear_worker("w1", decode_report(through_the_log(worker("w1", slots=0, law=StepLaw()))), NOW)
    assert evidence.basis(NOW) == Basis()
    assert 0.0 < measure_of(Settings(), RunOptions())(evidence.basis(NOW)).carries < 1.0


def test_the_basis_is_the_worker_in_the_middle_and_the_mix_of_the_lane() -> None:
    evidence = Evidence(Pool(buckets=("short", "long")))
    for number, ms in enumerate((9.0, 1.0, 3.0)):
        law = StepLaw(decode_ms=ms, prefill_ms_per_token=1.0)
        report_ = worker(f"w{number}", buckets=("short", "long"), slots=4 * number, law=law)
        evidence.hear_worker(f"w{number}", report_, NOW)
    counts = {
        "champion": {"short": BucketDemand(30), "long": BucketDemand(10), "medium": BucketDemand(99)},
        "light": {"long": BucketDemand(9)},
    }
    hear(evidence, (0, msgspec.structs.replace(asked(0, 0, 0.0), asked=counts)))
    basis = evidence.basis(NOW)
    assert (basis.law and basis.law.decode_ms, basis.slots) == (3.0, 8)
    assert basis.parts == {"short": 0.75, "long": 0.25}
    evidence.hear_worker("w9", worker("w9", buckets=("short", "long"), slots=2**53 - 1), NOW)
    assert evidence.basis(NOW).slots == 4_096, "as many as a simulation has room for"


def test_a_worker_that_comes_long_after_a_growth_is_no_cold_start() -> None:
    """One of two wanted workers never came; nine hours later a pod is replaced."""
    evidence = Evidence(Pool())
    evidence.change(1, 3, NOW)
    evidence.hear_worker("w2", worker("w2"), NOW + 60 * SECOND)
    later = NOW + 9 * 3_600 * SECOND
    assert evidence.seen(later, expected=None, lag=0).loading == 0
    evidence.hear_worker("w4", worker("w4"), later)
    assert list(evidence.cold_starts_ms) == [60 * SECOND]


def test_pools_of_one_lane_share_its_demand_by_their_workers() -> None:
    """Each of three zones has a pool of the same lane and lengths; a worker outside the pools counts for all of
    them."""
    zones = {name: Evidence(Pool(name=name)) for name in ("a", "b", "c")}
    workers = {f"w-{zone}-{number}": zone for zone, count in (("a", 1), ("b", 3)) for number in range(count)}
    for evidence in zones.values():
        hear(evidence, *steady(until_s=60, per_s=80))
        for name, zone in workers.items():
            evidence.hear_worker(name, worker(name, pool=zone), NOW + 60 * SECOND)
    now = {name: seen(evidence, 60) for name, evidence in zones.items()}
    assert {name: each.found for name, each in now.items()} == {"a": 1, "b": 3, "c": None}
    assert now["a"].asked == pytest.approx(1.0)
    assert now["b"].asked == pytest.approx(3.0)
    assert now["c"].asked == 0.0
    zones["a"].hear_worker("w", worker("w"), NOW + 60 * SECOND)
    assert seen(zones["a"], 60).found == 2
    assert seen(zones["a"], 64).asked == pytest.approx(4.0), "the others are silent: all of it is this pool's"


def test_answers_in_time_are_those_of_the_last_minute_of_all_gateways() -> None:
    evidence = Evidence(Pool())
    for at_s in range(0, 121, 5):
        for gateway, late in (("g0", 0), ("g1", 1)):
            judged = 1_000 + at_s * 10
            one = BucketDemand(judged, judged * 50.0, judged=judged, in_time=judged - late * at_s)
            report_ = msgspec.structs.replace(asked(at_s, 0, 0.0, gateway=gateway), asked={"champion": {"long": one}})
            hear(evidence, (at_s, report_))
    now = seen(evidence, 120)
    assert (now.judged, now.in_time) == (1_200, 1_140)
    silent = Evidence(Pool())
    hear(silent, *steady(until_s=60))
    assert (seen(silent, 60).judged, seen(silent, 60).in_time) == (0, 0), "releases before these counts"
