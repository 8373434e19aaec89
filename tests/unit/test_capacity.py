"""When a request that is sent now would get its first token, by what the workers said and what was sent since."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.capacity import Fleet
from shared.messages import Bucket, WorkerReport
from shared.topics import BUCKETS

TTL_MS = 3_000.0
NOW = 1_000_000.0


def report(
    name: str = "w1",
    *,
    unix_ms: float = NOW,
    buckets: tuple[Bucket, ...] = BUCKETS,
    slots: int = 4,
    running: int = 4,
    backlog_ms: float = 0.0,
    first_token_ms: float = 100.0,
    service_ms: float = 50.0,
) -> WorkerReport:
    return WorkerReport(
        worker_id=name,
        unix_ms=int(unix_ms),
        buckets=buckets,
        slots=slots,
        running=running,
        backlog_ms=backlog_ms,
        first_token_ms=dict.fromkeys(buckets, first_token_ms),
        service_ms=dict.fromkeys(buckets, service_ms),
    )


@pytest.fixture
def fleet() -> Fleet:
    return Fleet(ttl_ms=TTL_MS)


def test_without_a_worker_there_is_no_opinion(fleet: Fleet) -> None:
    assert fleet.eta_ms("short", NOW) is None


def test_a_report_is_believed_as_it_is(fleet: Fleet) -> None:
    fleet.observe(report(first_token_ms=120.0), NOW)
    assert fleet.eta_ms("short", NOW) == 120.0


def test_a_bucket_that_nobody_serves_has_no_prediction(fleet: Fleet) -> None:
    fleet.observe(report(buckets=("short",)), NOW)
    assert fleet.eta_ms("long", NOW) is None


def test_the_soonest_worker_counts(fleet: Fleet) -> None:
    fleet.observe(report("w1", first_token_ms=9_000.0), NOW)
    fleet.observe(report("w2", first_token_ms=80.0), NOW)
    assert fleet.eta_ms("short", NOW) == 80.0


def test_a_burst_between_two_reports_is_seen(fleet: Fleet) -> None:
    """Ten requests of 50 ms each stand before the eleventh, on a worker without a free slot."""
    fleet.observe(report(first_token_ms=100.0, service_ms=50.0), NOW)
    for _ in range(10):
        fleet.sent("short", NOW)
    assert fleet.eta_ms("short", NOW) == 600.0


def test_what_was_sent_is_shared_by_the_workers_of_its_bucket(fleet: Fleet) -> None:
    for name in ("w1", "w2"):
        fleet.observe(report(name), NOW)
    fleet.observe(report("w3", buckets=("long",), first_token_ms=900.0), NOW)
    for _ in range(10):
        fleet.sent("short", NOW)
    assert fleet.eta_ms("short", NOW) == 350.0
    assert fleet.eta_ms("long", NOW) == 350.0


def test_free_slots_take_in_what_was_sent_without_a_queue(fleet: Fleet) -> None:
    fleet.observe(report(slots=4, running=1), NOW)
    for _ in range(3):
        fleet.sent("short", NOW)
    assert fleet.eta_ms("short", NOW) == 100.0
    fleet.sent("short", NOW)
    assert fleet.eta_ms("short", NOW) == 150.0


def test_time_works_off_what_was_ahead_and_no_more(fleet: Fleet) -> None:
    """The queue of 400 ms melts; the request's own 100 ms do not."""
    fleet.observe(report(first_token_ms=500.0, backlog_ms=400.0), NOW)
    assert [fleet.eta_ms("short", NOW + later) for later in (0, 150, 400, 2_000)] == [500.0, 350.0, 100.0, 100.0]


def test_a_steady_load_below_capacity_does_not_look_like_a_queue(fleet: Fleet) -> None:
    """One request of 50 ms every 100 ms, and a report that is half a second old."""
    fleet.observe(report(first_token_ms=100.0, service_ms=50.0), NOW)
    for number in range(5):
        fleet.sent("short", NOW + 100 * number)
    assert fleet.eta_ms("short", NOW + 500) == 100.0


def test_a_new_report_counts_what_was_sent_before_it(fleet: Fleet) -> None:
    """What was sent just before is not in it yet."""
    fleet.observe(report(), NOW)
    for sent_unix_ms in (NOW + 100, NOW + 200, NOW + 480):
        fleet.sent("short", sent_unix_ms)
    fleet.observe(report(first_token_ms=200.0), NOW + 500)
    assert fleet.eta_ms("short", NOW + 500) == 250.0


def test_a_silent_worker_is_forgotten(fleet: Fleet) -> None:
    fleet.observe(report(), NOW)
    assert fleet.eta_ms("short", NOW + TTL_MS) is not None
    assert fleet.eta_ms("short", NOW + TTL_MS + 1) is None
    assert len(fleet) == 1
    assert fleet.expire(NOW + TTL_MS + 1) == ["w1"]
    assert len(fleet) == fleet.slots == 0


def test_another_workers_report_does_not_hide_who_has_fallen_silent(fleet: Fleet) -> None:
    fleet.observe(report("w1"), NOW)
    fleet.observe(report("w2"), NOW + TTL_MS + 1)
    assert fleet.expire(NOW + TTL_MS + 1) == ["w1"]
    assert len(fleet) == 1


def test_a_leaving_worker_is_forgotten_at_once(fleet: Fleet) -> None:
    fleet.observe(report("w1"), NOW)
    fleet.observe(report("w2", first_token_ms=700.0), NOW)
    assert fleet.forget("w1")
    assert not fleet.forget("w1")
    assert fleet.eta_ms("short", NOW) == 700.0


@pytest.mark.parametrize("skew_ms", [-3_600_000.0, -180_000.0, 180_000.0, 3_600_000.0])
def test_a_workers_clock_that_is_off_makes_no_report_stale_or_fresh_for_ever(fleet: Fleet, skew_ms: float) -> None:
    fleet.observe(report(unix_ms=NOW - skew_ms), NOW)
    assert fleet.eta_ms("short", NOW + TTL_MS) is not None
    assert fleet.eta_ms("short", NOW + TTL_MS + 1) is None


def test_a_gateways_clock_that_is_set_back_keeps_no_dead_worker(fleet: Fleet) -> None:
    fleet.observe(report(), NOW)
    assert fleet.eta_ms("short", NOW - 3_600_000) is None
    fleet.observe(report(unix_ms=NOW), NOW - 3_600_000)
    assert fleet.eta_ms("short", NOW - 3_600_000) == 100.0


MS = st.floats(0, 1e9)
REPORTS = st.builds(
    report,
    st.sampled_from(["w1", "w2", "w3"]),
    buckets=st.lists(st.sampled_from(BUCKETS), unique=True).map(tuple),
    slots=st.integers(0, 64),
    running=st.integers(0, 64),
    backlog_ms=MS,
    first_token_ms=MS,
    service_ms=MS,
)


@given(st.lists(REPORTS | st.sampled_from(BUCKETS), max_size=30), st.floats(0, 2 * TTL_MS))
def test_whatever_is_reported_and_sent_a_prediction_is_a_time(told: list[WorkerReport | Bucket], later: float) -> None:
    """None, or not negative and never below the least that any report leaves once its queue is worked off."""
    fleet = Fleet(ttl_ms=TTL_MS)
    newest: dict[str, WorkerReport] = {}
    for item in told:
        if isinstance(item, WorkerReport):
            fleet.observe(item, NOW)
            newest[item.worker_id] = item
        else:
            fleet.sent(item, NOW)
    for bucket in BUCKETS:
        eta = fleet.eta_ms(bucket, NOW + later)
        serving = [one for one in newest.values() if bucket in one.buckets]
        if later > TTL_MS or not serving:
            assert eta is None
        else:
            least = min(one.first_token_ms[bucket] - min(one.backlog_ms, one.first_token_ms[bucket]) for one in serving)
            assert eta is not None
            assert eta >= least >= 0
