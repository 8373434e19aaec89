"""A lane's workers count only for its own requests."""

import pytest

from gateway.destination.admission import AdmissionDecision, AdmissionPolicy
from gateway.destination.breaker import BreakerState
from gateway.destination.lanes import LaneAdmissions
from shared.wire.lanes import CHAMPION, LANES, Lane
from tests.support.builders.gateway import NOW, report
from tests.unit.gateway.destination.test_admission import decide


def lanes(**first_token_ms: float) -> LaneAdmissions:
    """One worker per lane, which predicts this and reads partition 0."""
    admissions = LaneAdmissions(AdmissionPolicy())
    names: dict[str, Lane] = {"champion": CHAMPION, "canary": "canary", "light": "light"}
    for name, ms in first_token_ms.items():
        admissions.observe(report(name, lane=names[name], partitions=(0,), first_token_ms=ms), NOW)
    return admissions


def test_a_lane_is_live_while_one_of_its_workers_reports() -> None:
    admissions = lanes(champion=50.0, canary=50.0)
    live = [admissions.of(lane).fleet.serves("short", NOW) for lane in (CHAMPION, "canary", "light")]
    assert live == [True, True, False]
    assert not admissions.of("canary").fleet.serves("short", NOW + 3_001)
    assert sorted(admissions.expire(NOW + 3_001)) == ["canary", "champion"]
    assert admissions.forget("canary") is False


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_is_live_for_the_versions_that_its_workers_have(lane: Lane) -> None:
    admissions = LaneAdmissions(AdmissionPolicy())
    admissions.observe(report("a", lane=lane, revisions=("old",), partitions=(0,)), NOW)
    admissions.observe(report("b", lane=lane, revisions=("old", "new"), partitions=(1,)), NOW + 2_000)
    fleet = admissions.of(lane).fleet
    for revision, now, live, asked in (
        ("new", NOW + 2_000, True, {1}),
        ("old", NOW + 2_000, True, {0, 1}),
        (None, NOW + 2_000, True, {0, 1}),
        ("refused", NOW + 2_000, False, {0, 1}),
        ("new", NOW + 5_001, False, set()),
    ):
        assert fleet.serves("short", now, revision) is live, revision
        assert set(fleet.waits("short", now, revision)) == asked, revision


def test_a_worker_that_changes_lanes_is_removed_from_the_previous_one() -> None:
    admissions = lanes(champion=50.0)
    assert [admissions.observe(report("champion", lane="canary"), NOW) for _ in range(2)] == [True, False]
    assert not admissions.of(CHAMPION).fleet.serves("short", NOW)
    assert admissions.of(CHAMPION).fleet.slots == 0


def test_each_lane_is_judged_by_its_own_workers() -> None:
    admissions = lanes(champion=60_000.0, canary=50.0)
    decide(admissions.of(CHAMPION), "probe")  # one at intervals is sent despite the prediction
    assert decide(admissions.of(CHAMPION), "r1").fallback == "infeasible"
    assert decide(admissions.of("canary"), "r2") == AdmissionDecision(None, 50.0, "canary")


def test_a_lane_with_late_replies_opens_only_its_own_breaker() -> None:
    admissions = lanes(champion=50.0, canary=50.0)
    for number in range(40):
        for lane, took_ms in ((CHAMPION, 10.0), ("canary", 60_000.0)):
            now = NOW + number * 100
            name = f"{lane}{number}"
            decide(admissions.of(lane), name, now=now)
            assert admissions.note_first_reply(name, now + took_ms) in {took_ms, None}
            admissions.release(name)
    states = [admissions.of(lane).breaker.state for lane in (CHAMPION, "canary")]
    assert states == [BreakerState.CLOSED, BreakerState.OPEN]
    assert [admissions.of(lane).inflight for lane in (CHAMPION, "canary")] == [0, 0]


def test_a_lane_is_abandoned_from_its_last_workers_end_until_another_reports() -> None:
    admissions = lanes(champion=50.0, canary=50.0)
    assert admissions.abandoned() == set()
    admissions.expire(NOW + 3_001)
    assert admissions.abandoned() == {"canary"}, (
        "the champion's workers count for no other lane, and the light lane was never used"
    )
    admissions.add_used({"light"})
    admissions.observe(report("canary", lane="canary"), NOW + 4_000)
    assert admissions.abandoned() == {"light"}
