"""The predicted first token of a request sent now, from the workers' reports and the requests sent since."""

from dataclasses import dataclass

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from gateway.destination.fleet import Fleet
from shared.wire.messages import Bucket
from shared.wire.reports import WorkerReport
from shared.wire.topics import BUCKETS
from tests.support.builders.gateway import NOW, report
from tests.unit.examples import examples

TTL_MS = 3_000.0


def eta_ms(fleet: Fleet, bucket: Bucket, now: float, partition: int | None = None) -> float | None:
    reader = fleet.reader(bucket, partition, now)
    return None if reader is None else reader.eta_ms(bucket, now)


def send(fleet: Fleet, bucket: Bucket, now: float, partition: int | None = None) -> None:
    reader = fleet.reader(bucket, partition, now)
    if reader is not None:
        reader.record_send(bucket, now)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(ttl_ms=TTL_MS)


def test_of_the_workers_of_a_bucket_the_soonest_counts_and_is_believed(fleet: Fleet) -> None:
    assert eta_ms(fleet, "short", NOW) is None
    fleet.observe(report("w1", buckets=("short",), first_token_ms=9_000.0), NOW)
    fleet.observe(report("w2", buckets=("short",), first_token_ms=80.0), NOW)
    assert (eta_ms(fleet, "short", NOW), eta_ms(fleet, "long", NOW)) == (80.0, None)


@pytest.mark.parametrize(("running", "waiting", "free"), [(1, 0, 3), (1, 2, 1)])
def test_free_slots_absorb_requests_without_a_queue(fleet: Fleet, running: int, waiting: int, free: int) -> None:
    fleet.observe(report(slots=4, running=running, waiting=waiting), NOW)
    for _ in range(free):
        send(fleet, "short", NOW)
    assert eta_ms(fleet, "short", NOW) == 100.0
    send(fleet, "short", NOW)
    assert eta_ms(fleet, "short", NOW) == 150.0


def test_elapsed_time_reduces_the_queue_and_no_more(fleet: Fleet) -> None:
    """The queue of 400 ms melts; the request's own 100 ms do not."""
    fleet.observe(report(first_token_ms=500.0, backlog_ms=400.0), NOW)
    assert [eta_ms(fleet, "short", NOW + later) for later in (0, 150, 400, 2_000)] == [500.0, 350.0, 100.0, 100.0]


def test_a_new_report_replaces_the_requests_sent_before_it(fleet: Fleet) -> None:
    """Requests sent just before it are not included yet."""
    fleet.observe(report(), NOW)
    for sent_unix_ms in (NOW + 100, NOW + 200, NOW + 480):
        send(fleet, "short", sent_unix_ms)
    fleet.observe(report(first_token_ms=200.0), NOW + 500)
    assert eta_ms(fleet, "short", NOW + 500) == 250.0


def test_a_silent_worker_is_forgotten_although_others_report(fleet: Fleet) -> None:
    fleet.observe(report(), NOW)
    assert eta_ms(fleet, "short", NOW + TTL_MS) is not None
    assert eta_ms(fleet, "short", NOW + TTL_MS + 1) is None
    fleet.observe(report("w2"), NOW + TTL_MS + 1)
    assert (len(fleet), fleet.slots) == (2, 8)
    assert fleet.expire(NOW + TTL_MS + 1) == ["w1"]
    assert (len(fleet), fleet.slots) == (1, 4)


def test_a_leaving_worker_is_forgotten_immediately(fleet: Fleet) -> None:
    fleet.observe(report("w1"), NOW)
    fleet.observe(report("w2", first_token_ms=700.0), NOW)
    assert fleet.forget("w1")
    assert not fleet.forget("w1")
    assert eta_ms(fleet, "short", NOW) == 700.0


@pytest.mark.parametrize("skew_ms", [-3_600_000.0, -180_000.0, 180_000.0, 3_600_000.0])
def test_a_workers_clock_that_is_off_makes_no_report_stale_or_fresh_for_ever(fleet: Fleet, skew_ms: float) -> None:
    fleet.observe(report(unix_ms=NOW - skew_ms), NOW)
    assert eta_ms(fleet, "short", NOW + TTL_MS) is not None
    assert eta_ms(fleet, "short", NOW + TTL_MS + 1) is None


def test_setting_a_gateways_clock_back_keeps_no_dead_worker(fleet: Fleet) -> None:
    fleet.observe(report(), NOW)
    assert eta_ms(fleet, "short", NOW - 3_600_000) is None
    fleet.observe(report(unix_ms=NOW), NOW - 3_600_000)
    assert eta_ms(fleet, "short", NOW - 3_600_000) == 100.0


@pytest.mark.parametrize("partition", [None, 7])
def test_for_a_partition_without_reader_the_soonest_worker_counts(fleet: Fleet, partition: int | None) -> None:
    """This happens in a rebalance, and with a worker that does not report its partitions."""
    fleet.observe(report("w1", first_token_ms=9_000.0, partitions=[0]), NOW)
    fleet.observe(report("w2", first_token_ms=80.0), NOW)
    assert eta_ms(fleet, "short", NOW, partition) == 80.0


def test_a_partitions_reader_counts_with_the_requests_sent_to_it(fleet: Fleet) -> None:
    fleet.observe(report("w1", first_token_ms=9_000.0, partitions=[0, 2]), NOW)
    fleet.observe(report("w2", first_token_ms=80.0, partitions=[1, 3]), NOW)
    assert [eta_ms(fleet, "short", NOW, partition) for partition in range(4)] == [9_000.0, 80.0] * 2
    for _ in range(10):
        send(fleet, "short", NOW, 1)
    assert [eta_ms(fleet, "long", NOW, partition) for partition in range(2)] == [9_000.0, 580.0]


def test_a_partition_belongs_to_the_worker_that_reported_it_last(fleet: Fleet) -> None:
    """A worker that has not noticed its loss continues to report the partition."""
    old, new = report("old", partitions=[0, 1]), report("new", first_token_ms=700.0, partitions=[1])
    for each in (old, new, old):
        fleet.observe(each, NOW)
    assert eta_ms(fleet, "short", NOW, 1) == 700.0
    fleet.observe(report("old", partitions=[0]), NOW)
    assert [eta_ms(fleet, "short", NOW, partition) for partition in range(2)] == [100.0, 700.0]
    fleet.forget("new")
    assert eta_ms(fleet, "short", NOW, 1) == 100.0


def test_a_prediction_is_put_to_the_test_once_an_interval_and_bucket(fleet: Fleet) -> None:
    fleet.observe(report(), NOW)
    reader = fleet.reader("short", None, NOW)
    assert reader is not None
    tried = [reader.may_try("short", NOW + later, interval_ms=1_000) for later in (0, 999, 1_000, 1_999, 2_000)]
    assert tried == [True, False, True, False, True]
    assert reader.may_try("long", NOW, interval_ms=1_000)


MS = st.sampled_from([0.0, 60.0, 500.0]) | st.floats(0, 1e6)
NAMES = st.sampled_from(["w1", "w2", "w3"])
REPORTS = st.builds(
    report,
    NAMES,
    buckets=st.lists(st.sampled_from(BUCKETS), unique=True).map(tuple),
    partitions=st.lists(st.integers(0, 3), unique=True),
    slots=st.integers(0, 64),
    running=st.integers(0, 64),
    backlog_ms=MS,
    first_token_ms=MS,
    service_ms=MS,
)


@dataclass
class Told:
    """A worker as the definition has it: its newest report, and every request that was sent to it, with its time."""

    report: WorkerReport
    received: float
    sent: list[tuple[float, Bucket]]

    def eta_ms(self, bucket: Bucket, now: float) -> float:
        ahead = [
            self.report.service_ms.get(each, 0.0)
            for at, each in self.sent
            if at > self.received - 50.0 and each in self.report.buckets
        ]
        free = max(0, self.report.slots - self.report.running - self.report.waiting)
        ahead_ms = sum(ahead) * (1 - free / len(ahead)) if len(ahead) > free else 0.0
        first_ms = self.report.first_token_ms[bucket]
        queue_ms = min(self.report.backlog_ms, first_ms)
        return first_ms - queue_ms + max(0.0, queue_ms + ahead_ms - (now - self.received))


class AnyFleet(RuleBasedStateMachine):
    """Workers report, leave and fall silent, requests are sent: each prediction equals the definition's."""

    def __init__(self) -> None:
        super().__init__()
        self.fleet = Fleet(ttl_ms=TTL_MS)
        self.now = NOW
        self.told: dict[str, Told] = {}
        self.said: dict[tuple[Bucket, int], str] = {}

    def reads(self, name: str) -> set[tuple[Bucket, int]]:
        told = self.told.get(name)
        return {(b, n) for b, numbers in told.report.partitions.items() for n in numbers} if told is not None else set()

    @rule(later=st.sampled_from([0.0, 1.0, 49.0, 51.0, 1_000.0, TTL_MS]))
    def time_passes(self, later: float) -> None:
        self.now += later

    @rule(newest=REPORTS)
    def observe(self, newest: WorkerReport) -> None:
        before = self.reads(newest.worker_id)
        sent = self.told[newest.worker_id].sent if newest.worker_id in self.told else []
        self.told[newest.worker_id] = Told(newest, self.now, sent)
        self.said.update(dict.fromkeys(self.reads(newest.worker_id) - before, newest.worker_id))
        self.fleet.observe(newest, self.now)

    @rule(name=NAMES)
    def leave(self, name: str) -> None:
        assert self.fleet.forget(name) == (self.told.pop(name, None) is not None)

    @rule()
    def expire(self) -> None:
        silent = {name for name, told in self.told.items() if self.now - told.received > TTL_MS}
        assert set(self.fleet.expire(self.now)) == silent
        for name in silent:
            del self.told[name]

    @rule(bucket=st.sampled_from(BUCKETS), partition=st.none() | st.integers(0, 3))
    def ask(self, bucket: Bucket, partition: int | None) -> None:
        fresh = {name: told for name, told in self.told.items() if self.now - told.received <= TTL_MS}
        etas = {name: told.eta_ms(bucket, self.now) for name, told in fresh.items() if bucket in told.report.buckets}
        reader = self.fleet.reader(bucket, partition, self.now)
        if partition is not None:
            said = self.said.get((bucket, partition), "")
            if said in fresh and (bucket, partition) in self.reads(said):
                etas = {said: etas[said]}
        if reader is None:
            assert not etas
            return
        name = reader.report.worker_id
        assert reader.eta_ms(bucket, self.now) == pytest.approx(etas[name], abs=0.001)
        assert etas[name] == pytest.approx(min(etas.values()), abs=0.001)
        self.told[name].sent.append((self.now, bucket))
        reader.record_send(bucket, self.now)

    @invariant()
    def the_sums_are_right(self) -> None:
        assert len(self.fleet) == len(self.told)
        assert {name for name in ("w1", "w2", "w3") if name in self.fleet} == set(self.told)
        assert self.fleet.slots == sum(told.report.slots for told in self.told.values())


AnyFleet.TestCase.settings = settings(max_examples=examples(150), stateful_step_count=40, deadline=None)
TestAnyFleet = AnyFleet.TestCase
