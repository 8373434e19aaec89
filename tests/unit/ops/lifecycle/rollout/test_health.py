"""A rollout waits while a worker or a gateway is not well, and as long as that is not known."""

import asyncio
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.outbound.calls import Calls
from ops.lifecycle.rollout.health import Watch, gateway_fault
from ops.lifecycle.rollout.plan import Plan
from ops.lifecycle.rollout.policy import Health
from ops.lifecycle.rollout.surroundings import Surroundings
from ops.lifecycle.versions.workers import SILENT_MS
from ops.operate.diagnose.pages import parse_page
from shared.settings import Settings
from shared.versions.state import Rung, State
from shared.wire.lanes import Lane
from shared.wire.reports import Refusal, WorkerReport
from shared.wire.scaling import DemandReport

PLAN = Plan(version="new", champion="old", steps=(0.5,))
STATE = State(epoch=4)
NOW = 100_000.0
UNUSED: Any = None


def worker(lane: Lane, *revisions: str, **changes: Any) -> WorkerReport:
    values: dict[str, Any] = {"slots": 4, "running": 1, "waiting": 1} | changes
    return WorkerReport(worker_id=f"{lane}-1", unix_ms=0, buckets=(), lane=lane, revisions=revisions, **values)


def gateway(**changes: Any) -> DemandReport:
    values: dict[str, Any] = {"epoch": 4, "rung": "champion"} | changes
    return DemandReport(gateway_id="g", unix_ms=0, since_unix_ms=0, **values)


def well() -> Surroundings:
    """Return surroundings with nothing against a promotion."""
    around = Surroundings(since_unix_ms=0.0, faults=[])
    for report in (worker("champion", "old", "new"), worker("canary", "new"), worker("control", "old")):
        around.observe_worker(report.worker_id, report, NOW)
    around.observe_gateway("g", gateway(), NOW)
    return around


def health(around: Surroundings, now: float = NOW, moved: float = 0.0) -> Health:
    return around.health(PLAN, STATE, moved, now)


def test_a_system_that_reports_and_is_well_freezes_nothing() -> None:
    found = health(well())
    assert (found.degraded, found.unknown, found.champions_loaded) == ([], [], True)
    assert (found.slots, found.busy) == ({"champion": 4, "canary": 4, "control": 4}, 6)


@pytest.mark.parametrize(("loading", "is_named"), [({"champion": "new"}, True), ({}, False)])
def test_a_champions_worker_that_refuses_the_version_is_named_once_it_is_to_load_it(
    loading: dict[Lane, str], is_named: bool
) -> None:
    around = well()
    refusing = worker("champion", "old", refused={"new": Refusal(epoch=4, reason="needs 9 GB, 2 GB are free")})
    around.observe_worker("champion-1", refusing, NOW)
    found = around.health(PLAN, replace(STATE, loading=loading), 0.0, NOW)
    why = "worker champion-1 of lane champion refuses new: needs 9 GB, 2 GB are free"
    assert (found.degraded, why in found.unknown, found.champions_loaded) == ([], is_named, False)


WORKERS = [
    (worker("canary", "old"), "worker canary-1 of lane canary has not loaded new"),
    (worker("canary"), "worker canary-1 of lane canary has not loaded new"),
    (
        worker("canary", refused={"new": Refusal(epoch=1, reason="corrupt")}),
        "worker canary-1 of lane canary refuses new: corrupt",
    ),
    (worker("control", "new"), "worker control-1 of lane control has not loaded old"),
    (worker("control", refused={"old": Refusal(epoch=1, reason="memory")}), "refuses old: memory"),
]


@pytest.mark.parametrize(("report", "reason"), WORKERS)
def test_a_worker_without_its_version_is_named(report: WorkerReport, reason: str) -> None:
    around = well()
    around.observe_worker(report.worker_id, report, NOW)
    assert len(health(around).degraded) == 1
    assert reason in health(around).degraded[0]


@pytest.mark.parametrize("lane", ["canary", "control"])
@pytest.mark.parametrize("leaves", [True, False], ids=["leaves", "falls silent"])
def test_a_lane_without_a_worker_is_named_with_the_remedy(lane: Lane, leaves: bool) -> None:
    around, later = well(), NOW if leaves else NOW + SILENT_MS + 1
    for each in around.lanes:
        around.observe_worker(
            f"{each}-1", None if each == lane and leaves else _of(each), NOW if each == lane else later
        )
    around.observe_gateway("g", gateway(), later)
    (reason,) = health(around, later).degraded
    assert reason == f"no worker of lane {lane} reports; start one: REPLYLINE_WORKER__LANE={lane} replyline worker"


def _of(lane: Lane) -> WorkerReport:
    return worker(lane, "old", "new")


def test_a_rollout_without_a_control_asks_nothing_of_its_lane() -> None:
    around = well()
    around.observe_worker("control-1", None, NOW)
    assert (
        around.health(Plan(version="new", champion="old", steps=(1.0,), control=False), STATE, 0.0, NOW).degraded == []
    )


GATEWAYS = [
    (gateway(breakers=("champion",)), "degraded", "the breaker of lane champion at gateway g is open"),
    (gateway(breakers=("canary",)), "degraded", "the breaker of lane canary at gateway g is open"),
    (gateway(rung="light"), "degraded", "the ladder of gateway g is at light"),
    (gateway(rung="faq"), "degraded", "the ladder of gateway g is at faq"),
    (gateway(rung="a rung of a later release"), "degraded", "is at a rung of a later release"),
    (gateway(rung=None), "unknown", "gateway g does not report its ladder and breakers; upgrade it"),
    (gateway(epoch=3), "unknown", "gateway g follows epoch 3, not 4"),
    (None, "unknown", "no gateway reports"),
]


@pytest.mark.parametrize(("report", "kind", "reason"), GATEWAYS)
def test_a_gateway_that_is_not_well_or_says_nothing_is_a_reason(
    report: DemandReport | None, kind: str, reason: str
) -> None:
    around = well()
    around.observe_gateway("g", report, NOW)
    found = health(around)
    assert [reason in each for each in getattr(found, kind)] == [True]


@pytest.mark.parametrize("rung", ["light", "cpu", "faq"])
def test_a_ladder_that_an_operator_holds_is_no_overload(rung: Rung) -> None:
    """It freezes the rollout; a step down would be for nothing."""
    around = well()
    around.observe_gateway("g", gateway(rung=rung), NOW)
    assert around.health(PLAN, State(epoch=4, rung=rung), 0.0, NOW).degraded == []
    assert health(around).degraded == [f"the ladder of gateway g is at {rung}"]


def test_a_silent_gateway_is_unknown_for_a_minute_and_a_move_is_followed_within_seconds() -> None:
    around = well()
    around.observe_gateway("other", gateway(), NOW)
    for later in (SILENT_MS + 1, 60_000.0):
        around.observe_gateway("g", gateway(epoch=3), NOW + later)
        assert health(around, NOW + later, moved=NOW + later - 4_000).unknown == ["gateway other is silent"]
    around.observe_gateway("g", gateway(), NOW + 60_001)
    assert health(around, NOW + 60_001).unknown == []


def test_before_the_first_reports_and_the_first_look_nothing_is_known() -> None:
    found = health(Surroundings())
    assert found.unknown == [
        "the workers' reports are not read yet",
        "the lag is not known yet",
        "no gateway reports",
    ]
    assert not found.champions_loaded


def test_champions_that_are_silent_or_absent_have_loaded_nothing() -> None:
    """A version would become the champion that its workers cannot load."""
    around = well()
    assert not health(around, NOW + SILENT_MS + 1).champions_loaded
    around.observe_worker("champion-1", None, NOW)
    assert not health(around).champions_loaded


@pytest.mark.parametrize("lane", ["champion", "canary", "control"])
def test_what_waits_in_any_lane_of_a_rollout_counts(lane: Lane) -> None:
    around = well()
    around.waiting = {lane: 16}
    assert health(around).degraded == []
    around.waiting = {lane: 17}
    assert health(around).degraded == [f"17 requests of lane {lane} wait for 4 slots"]


@pytest.mark.parametrize(("min_s", "known_s", "known"), [(60.0, 59, False), (60.0, 60, True), (5.0, 5, True)])
def test_a_controller_that_has_just_started_promotes_nothing_before_it_knows_the_load(
    min_s: float, known_s: float, known: bool
) -> None:
    around = well()
    around.since_unix_ms = NOW - known_s * 1_000
    found = around.health(replace(PLAN, min_s=min_s), STATE, 0.0, NOW)
    assert found.unknown == ([] if known else ["this controller does not know the load of the last minute yet"])


def test_a_canary_whose_worker_keeps_crashing_is_never_promoted() -> None:
    """The champion answers in time what it leaves, which is no evidence against it."""
    around, calm = well(), []
    for second in range(300):
        now = NOW + 1_000 * second
        for lane in around.lanes:
            is_gone = lane == "canary" and second % 60 >= 48
            around.observe_worker(f"{lane}-1", None if is_gone else _of(lane), now)
        around.observe_gateway("g", gateway(), now)
        found = health(around, now)
        calm += [] if found.degraded or found.unknown else [second]
    assert calm == list(range(48))


@pytest.mark.parametrize(("min_s", "calm_s"), [(60.0, 60), (600.0, 60), (5.0, 5), (0.0, 0)])
def test_a_promotion_waits_after_the_system_was_degraded(min_s: float, calm_s: int) -> None:
    around, plan = well(), replace(PLAN, min_s=min_s)
    around.waiting = {"canary": 99}
    assert around.health(plan, STATE, 0.0, NOW).degraded
    around.waiting = {}
    for second in range(62):
        now = NOW + 1_000 * second
        for lane in around.lanes:
            around.observe_worker(f"{lane}-1", _of(lane), now)
        around.observe_gateway("g", gateway(), now)
        expected = [f"the system was degraded {second} s ago"] if second < calm_s else []
        assert around.health(plan, STATE, 0.0, now).unknown == expected


def test_time_degraded_adds_up_although_the_reason_flaps() -> None:
    around, now, reached = well(), NOW, 0.0
    for second in range(300):
        now += 1_000
        around.waiting = {"canary": 99 if second % 2 else 0}
        for lane in around.lanes:
            around.observe_worker(f"{lane}-1", _of(lane), now)
        reached = health(around, now).degraded_ms
    assert reached >= 60_000


@pytest.mark.parametrize(
    ("page", "reason"),
    [
        ('replyline_gateway_guards{what="breaker"} 0\nreplyline_gateway_rung 0\n', None),
        ('replyline_gateway_guards{what="breaker"} 1\nreplyline_gateway_rung 0\n', None),
        ('replyline_gateway_guards{what="breaker"} 2\nreplyline_gateway_rung 0\n', "the breaker of g is open"),
        ('replyline_gateway_guards{what="breaker"} 0\nreplyline_gateway_rung 1\n', "below the champion"),
        ("", "--gateway g: is no page of a gateway"),
        ("replyline_worker_slots 2\n", "--gateway g: is no page of a gateway"),
    ],
)
def test_a_gateways_page_is_read_and_any_other_page_is_a_reason(page: str, reason: str | None) -> None:
    found = gateway_fault(parse_page(page), "g")
    assert found is None if reason is None else reason in (found or "")


async def test_a_gateway_that_cannot_be_read_is_one_line_with_the_remedy() -> None:
    calls = Calls({})
    reason = await Watch(Settings().kafka, (), calls, UNUSED)._gateway("http://127.0.0.1:1/metrics")
    await calls.close()
    assert reason is not None
    assert "no page of metrics" in reason
    assert "write http://HOST:PORT/metrics" in reason


async def test_a_look_that_fails_freezes_the_rollout_and_the_controller_lives() -> None:
    class Reports:
        def next_offset(self, _partition: int) -> int:
            return 0

    looked = asyncio.Event()

    class Broken(Watch):
        async def _lag(self) -> str | None:
            looked.set()
            raise RuntimeError("not a broker's error")

    reports: Any = Reports()
    watch = Broken(Settings().kafka, (), UNUSED, reports)
    looking = asyncio.create_task(watch.look())
    await looked.wait()
    for _ in range(5):
        await asyncio.sleep(0)
    assert watch.around.faults == ["the look at lag and gateways failed: RuntimeError"]
    assert not looking.done()
    looking.cancel()
