"""A request over a limit is refused immediately with the reason and a time to retry; one that the workers cannot meet
gets the fallback immediately.
"""

from collections import Counter
from functools import partial
from typing import Any

import msgspec
import pytest

from gateway.destination.admission import (
    Admission,
    AdmissionDecision,
    AdmissionLimits,
    AdmissionPolicy,
    FallbackReason,
    check_inflight,
    promise,
)
from gateway.destination.breaker import BreakerState
from gateway.destination.count import check_length
from shared.errors import ProtocolError
from shared.settings import Settings
from shared.wire.deadline import Deadline
from shared.wire.messages import Bucket, ResponseCreate
from shared.wire.topics import BUCKETS
from tests.support.builders import gateway as builders
from tests.support.builders.gateway import NOW

LIMITS = AdmissionLimits(
    max_inflight=100,
    max_inflight_per_connection=4,
    first_token_ms=200,
    deadline_ms=1_000,
    max_deadline_ms=60_000,
)


@pytest.mark.parametrize(
    ("now", "draining", "code", "kind", "retry_after_ms"),
    [
        ((5, 4), False, "too_many_inflight", "rate_limit_error", None),
        ((100, 0), False, "queue_full", "overloaded_error", 1_000),
        ((0, 0), True, "shutting_down", "overloaded_error", 1_000),
        ((100, 4), True, "shutting_down", "overloaded_error", 1_000),
    ],
)
def test_one_more_than_fits_is_refused(
    now: tuple[int, int], draining: bool, code: str, kind: str, retry_after_ms: int | None
) -> None:
    with pytest.raises(ProtocolError) as caught:
        check_inflight(LIMITS, inflight=now[0], of_connection=now[1], draining=draining)
    error = caught.value
    assert (error.code, error.kind, error.retriable, error.retry_after_ms) == (code, kind, True, retry_after_ms)


def test_the_last_request_within_the_limit_is_accepted() -> None:
    check_inflight(LIMITS, inflight=99, of_connection=3, draining=False)
    check_length(10, 10)


def test_an_overlong_input_is_refused_with_its_excess() -> None:
    with pytest.raises(ProtocolError, match="has 11 tokens, 10 are allowed") as caught:
        check_length(10, 11)
    assert (caught.value.code, caught.value.param, caught.value.retriable) == ("input_too_long", "input", False)


def ask(**fields: int) -> ResponseCreate:
    return ResponseCreate(event_id="e", input="x", **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("asked", "soft", "hard"),
    [
        ({}, 1_200, 2_000),
        ({"deadline_ms": 60_000}, 1_200, 61_000),
        ({"first_token_ms": 50}, 1_050, 2_000),
        ({"deadline_ms": 100}, 1_100, 1_100),
        ({"first_token_ms": 2**53 - 1}, 2_000, 2_000),
    ],
)
def test_the_promise_runs_from_the_receipt(asked: dict[str, int], soft: int, hard: int) -> None:
    deadline = promise(ask(**asked), LIMITS, 1_000.5)
    assert (deadline.first_token_unix_ms, deadline.deadline_unix_ms) == (soft, hard)


def test_a_deadline_beyond_the_longest_is_refused() -> None:
    """An absolute time given by mistake would otherwise wait for decades."""
    with pytest.raises(ProtocolError, match="deadline_ms=60001 is above 60000") as caught:
        promise(ask(deadline_ms=60_001), LIMITS, 0)
    assert (caught.value.code, caught.value.param) == ("invalid_field", "deadline_ms")


def test_the_limits_come_from_the_settings() -> None:
    given = Settings()
    assert AdmissionLimits.of(given) == AdmissionLimits(
        max_inflight=given.gateway.max_inflight,
        max_inflight_per_connection=given.gateway.max_inflight_per_connection,
        first_token_ms=given.promise.first_token_ms,
        deadline_ms=given.promise.deadline_ms,
        max_deadline_ms=given.promise.max_deadline_ms,
    )


# --- requests that the workers get

report = partial(builders.report, slots=8, running=8, service_ms=10.0)


def make_admission(**given: Any) -> Admission:
    return Admission(AdmissionPolicy(**given))


def reported(first_token_ms: float) -> Admission:
    """The report of one worker."""
    admission = make_admission()
    admission.fleet.observe(report(first_token_ms=first_token_ms), NOW)
    return admission


def lights(admission: Admission, count: int, **asked: Any) -> list[FallbackReason | None]:
    """Return the outcomes of this many requests sent one after the other."""
    return [decide(admission, f"r{number}", **asked).fallback for number in range(count)]


def decide(
    admission: Admission,
    name: str,
    *,
    now: float = NOW,
    waited: float = 0.0,
    soft: int = 3_000,
    bucket: Bucket = "short",
    tenant: str = "demo",
    partition: int | None = 0,
) -> AdmissionDecision:
    received = now - waited
    deadline = Deadline.after(received, first_token_ms=soft, whole_ms=15_000)
    return admission.decide(
        name, tenant, bucket, deadline, partition=partition, received_unix_ms=received, now_unix_ms=now
    )


def test_only_requests_of_a_hot_partition_are_refused_while_workers_are_idle() -> None:
    """The key decides which worker gets a request, so an idle other worker cannot take it."""
    admission = make_admission()
    admission.fleet.observe(report(name="busy", first_token_ms=60_000.0, partitions=(0, 2)), NOW)
    admission.fleet.observe(report(name="idle", first_token_ms=50.0, partitions=(1, 3)), NOW)
    assert decide(admission, "tried", partition=0).eta_ms == 60_000.0
    found = [decide(admission, f"r{number}", partition=number).fallback for number in range(4)]
    assert found == ["infeasible", None] * 2


def test_a_wrong_prediction_is_found_out_of_each_worker() -> None:
    admission = make_admission()
    for number in range(3):
        admission.fleet.observe(report(name=f"w{number}", first_token_ms=60_000.0, partitions=(number,)), NOW)
    found = [decide(admission, f"r{number}", partition=number % 3).fallback for number in range(6)]
    assert found == [None] * 3 + ["infeasible"] * 3


def test_without_a_report_every_request_goes_to_the_workers() -> None:
    assert decide(make_admission(), "r") == AdmissionDecision(fallback=None, eta_ms=None)


def test_a_worker_that_reports_no_duration_gets_its_requests() -> None:
    admission = make_admission()
    said = report(first_token_ms=60_000.0, partitions=(0,))
    admission.fleet.observe(msgspec.structs.replace(said, first_token_ms={"long": 60_000.0}), NOW)
    assert [decide(admission, f"r{number}") for number in range(2)] == [
        AdmissionDecision(fallback=None, eta_ms=None, worker_id="w1")
    ] * 2


def test_the_prediction_counts_from_the_receipt_and_includes_requests_sent_since_the_report() -> None:
    admission = reported(400.0)
    assert decide(admission, "r", waited=30.0) == AdmissionDecision(fallback=None, eta_ms=430.0)
    assert [decide(admission, f"r{number}").eta_ms for number in range(2)] == [410.0, 420.0]


def test_a_request_that_cannot_be_met_gets_the_fallback() -> None:
    """Beyond 1.25 times the time left until the first token; one request a second is sent all the same."""
    admission = reported(3_750.0)
    assert decide(admission, "r1").fallback is None
    assert decide(admission, "r2", waited=10.0, now=NOW).fallback is None  # tried against the prediction
    assert decide(admission, "r3", waited=10.0) == AdmissionDecision(fallback="infeasible", eta_ms=3_780.0)
    assert decide(admission, "r4", soft=15_000).fallback is None


def test_a_prediction_of_doom_is_put_to_the_test_once_a_second_and_bucket() -> None:
    """Ten seconds of a hundred requests a second and bucket; the reports, and the worker, say that none can be met."""
    admission = make_admission()
    sent: Counter[Bucket] = Counter()
    for tick in range(1_000):
        now = NOW + tick * 10
        if tick % 50 == 0:
            admission.fleet.observe(report(first_token_ms=60_000.0), now)
        for bucket in BUCKETS:
            name = f"{bucket}{tick}"
            sent[bucket] += decide(admission, name, now=now, bucket=bucket).fallback is None
            admission.note_first_reply(name, now)
            admission.release(name)
    assert sent == dict.fromkeys(BUCKETS, 10)


def test_a_wrong_prediction_recovers_with_the_next_report() -> None:
    admission = reported(60_000.0)
    assert lights(admission, 3) == [None, "infeasible", "infeasible"]
    admission.fleet.observe(report(first_token_ms=50.0), NOW)
    assert decide(admission, "r").fallback is None


def test_a_tenant_that_fills_the_slots_yields_to_others() -> None:
    """While another asks too, and as long as the slots are taken."""
    admission = reported(10.0)
    decide(admission, "small", tenant="small")
    assert lights(admission, 20, tenant="big") == [None] * 6 + ["share"] * 14
    assert decide(admission, "small2", tenant="small").fallback is None
    admission.release("r0")
    admission.release("small")
    assert decide(admission, "r20", tenant="big").fallback is None


def test_one_tenants_queue_is_not_counted_against_another() -> None:
    """The workers give up one tenant's requests for the other's, for any prediction."""
    admission = make_admission()
    for number in range(60):
        decide(admission, f"big{number}", tenant="big")
    admission.fleet.observe(report(first_token_ms=60_000.0), NOW)
    decide(admission, "tried", tenant="big")
    assert decide(admission, "big", tenant="big").fallback == "infeasible"
    assert decide(admission, "small", tenant="small").fallback is None
    assert decide(admission, "big again", tenant="big").fallback == "share"
    assert decide(admission, "small too", tenant="small").fallback is None


def test_a_tenant_behind_its_own_queue_gets_no_priority() -> None:
    """Even while slots are free."""
    admission = make_admission()
    decide(admission, "small", tenant="small")
    admission.release("small")
    for number in range(4):
        decide(admission, f"big{number}", tenant="big")
    admission.fleet.observe(report(first_token_ms=60_000.0), NOW)
    decide(admission, "tried", tenant="big")
    assert decide(admission, "big", tenant="big").fallback == "infeasible"
    assert decide(admission, "small again", tenant="small").fallback is None


def silence(admission: Admission, *, requests: int = 30) -> None:
    for number in range(requests):
        decide(admission, f"silent{number}", now=NOW + number)
        admission.release(f"silent{number}")  # by the fallback


def test_silent_workers_open_the_breaker_and_fast_probes_close_it() -> None:
    """By default after twice the promise: six seconds here."""
    admission = make_admission()
    silence(admission)
    assert decide(admission, "r", now=NOW + 6_000).fallback is None
    late = NOW + 6_030
    assert decide(admission, "r", now=late).fallback == "breaker"
    assert decide(admission, "r", now=late + 4_999).fallback == "breaker"
    probing = late + 5_000
    assert lights(admission, 6, now=probing) == [None] * 5 + ["breaker"]
    for number in range(5):
        admission.note_first_reply(f"r{number}", probing + 100)
    assert decide(admission, "r", now=probing + 100).fallback is None


def test_probes_without_a_reply_open_it_again() -> None:
    admission = make_admission()
    silence(admission)
    decide(admission, "r", now=NOW + 6_030)
    probing = NOW + 11_030
    assert lights(admission, 6, now=probing) == [None] * 5 + ["breaker"]
    assert decide(admission, "r", now=probing + 6_001).fallback == "breaker"
    assert admission.breaker.state is BreakerState.OPEN


def test_a_probe_that_was_erased_and_is_asked_again_is_one_probe() -> None:
    """Otherwise the breaker would wait for the first one's reply for ever."""
    admission = make_admission()
    silence(admission)
    decide(admission, "r", now=NOW + 6_030)
    probing = NOW + 11_030
    for number in range(10):
        assert decide(admission, "probe", now=probing + number).fallback is None
        admission.release("probe")
    for number in range(4):
        assert decide(admission, f"probe{number}", now=probing + 20).fallback is None
        admission.note_first_reply(f"probe{number}", probing + 30)
    admission.note_first_reply("probe", probing + 30)
    assert admission.breaker.state is BreakerState.CLOSED


def test_a_repeated_request_is_late_by_its_own_time() -> None:
    admission = make_admission()
    decide(admission, "r")
    admission.release("r")
    decide(admission, "r", now=NOW + 5_000)
    decide(admission, "other", now=NOW + 6_001)
    assert admission.note_first_reply("r", NOW + 6_002) == 1_002
    assert (admission.breaker.words, admission.breaker.late) == (1, 0)


def test_refusing_in_time_is_no_fault() -> None:
    """Under ten times the load nine in ten are refused, each by its deadline: the breaker stays closed."""
    admission = make_admission()
    for number in range(2_000):
        now = NOW + number * 10
        assert decide(admission, f"r{number}", now=now).fallback is None
        if number >= 310:  # each after 3.1 seconds: refused at its deadline, and a little on the way
            admission.note_first_reply(f"r{number - 310}", now)
            admission.release(f"r{number - 310}")
    assert admission.breaker.state is BreakerState.CLOSED


@pytest.mark.parametrize(("soft", "threshold"), [(200, 1_500), (3_000, 6_000)])
def test_the_breakers_threshold_follows_the_promise(soft: int, threshold: int) -> None:
    for took_ms, state in ((threshold, BreakerState.CLOSED), (threshold + 1, BreakerState.OPEN)):
        admission = make_admission()
        for number in range(20):
            decide(admission, f"r{number}", soft=soft)
        for number in range(20):
            assert admission.note_first_reply(f"r{number}", NOW + took_ms) == took_ms
        assert admission.breaker.state is state


def test_a_reply_counts_as_late_only_after_its_threshold() -> None:
    admission = make_admission()
    for name in ("last moment", "silent"):
        decide(admission, name)
    decide(admission, "r", now=NOW + 6_000)
    assert admission.note_first_reply("last moment", NOW + 6_000) == 6_000
    decide(admission, "s", now=NOW + 6_001)
    assert admission.note_first_reply("silent", NOW + 6_001) is None
    assert (admission.breaker.words, admission.breaker.late) == (2, 1)


def test_only_the_first_reply_to_a_request_counts_and_a_reset_clock_gives_no_negative_time() -> None:
    admission = make_admission()
    for name in ("r", "set back"):
        decide(admission, name)
    words = (("r", NOW + 5), ("r", NOW + 9), ("other", NOW), ("set back", NOW - 3_600_000))
    assert [admission.note_first_reply(*word) for word in words] == [5, None, None, 0]


def test_a_request_that_kafka_did_not_accept_says_nothing_about_the_workers() -> None:
    admission = make_admission()
    for number in range(30):
        decide(admission, f"r{number}")
        admission.withdraw(f"r{number}")
        admission.release(f"r{number}")
    decide(admission, "later", now=NOW + 60_000)
    assert (admission.breaker.words, admission.inflight) == (0, 1)


def test_switched_off_everything_goes_to_the_workers() -> None:
    admission = make_admission(enabled=False)
    admission.fleet.observe(report(first_token_ms=60_000.0), NOW)
    silence(admission)
    assert lights(admission, 50, now=NOW + 60_000) == [None] * 50
