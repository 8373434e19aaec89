"""What is asked and who is there, by reports that come late, twice, from the start again, or not at all."""

import math

import msgspec
import pytest

from gateway.destination.fleet import Fleet
from ops.scaling.autoscale.building import measure_of
from ops.scaling.autoscale.commands import RunOptions
from ops.scaling.autoscale.evidence import Evidence, Pool
from ops.scaling.autoscale.scaler import Seen
from shared.process.clock import wire_unix_ms
from shared.settings import Settings
from shared.wire.codec import decode_report, decode_scaling
from shared.wire.messages import PricedMessage, WorkerReport
from shared.wire.scaling import Asked, DemandReport, ScalingRecord
from tests.support.builders.gateway import report

NOW, SECOND = 1_000_000.0, 1_000.0


def asked(at_s: float, requests: int, work_ms: float, *, gateway: str = "g0", since_s: float = -3_600) -> DemandReport:
    """Return a gateway's counts; its clock is an hour behind ours."""
    clock = NOW - 3_600 * SECOND
    return DemandReport(
        gateway_id=gateway,
        unix_ms=int(clock + at_s * SECOND),
        since_unix_ms=int(clock + since_s * SECOND),
        asked={"champion": {"short": Asked(requests, work_ms)}, "canary": {"short": Asked(9_999, 9e6)}},
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
    """It reports no slots either."""
    evidence, now = Evidence(Pool()), wire_unix_ms()
    evidence.hear_worker("w1", decode_report(through_the_log(worker("w1", slots=0))), now)
    evidence.seen(now, expected=None, lag=0)
    assert 0.0 < measure_of(Settings(), RunOptions())(evidence).carries < 1.0
