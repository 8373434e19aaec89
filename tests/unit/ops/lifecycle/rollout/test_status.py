"""`rollout status` begins with what an operator needs: which versions, which share, and why it has no other."""

import pytest

from ops.lifecycle.rollout.commands import _led, _told
from ops.operate.leader import Lease
from shared.versions.registry import Added, Noted, Registry
from shared.versions.version import Version
from tests.unit.ops.lifecycle.rollout.test_records import STARTED, decided, found, registry_of

PAUSED = Noted(rollout="r", kind="paused", reason="paused by ann: a holiday", unix_ms=61_000)

SINCE = "since 1970-01-01T00:01:00Z, was seen at 1970-01-01T00:01:10Z"
DUE = "wait: no decision yet; one is due 10 s after 1970-01-01T00:00:00Z, by: replyline rollout run"


def held(kind: str, unix_ms: int) -> Noted:
    return Noted(rollout="r", kind=kind, reason="too few answers: short has 3 of 50", unix_ms=unix_ms)


@pytest.mark.parametrize(
    ("notes", "says"),
    [
        ([], DUE),
        ([held("hold", 9)], DUE),
        ([held("hold", 60_000)], "hold: too few answers: short has 3 of 50 (since 1970-01-01T00:01:00Z)"),
        ([held("hold", 60_000), PAUSED], "paused by ann: a holiday"),
    ],
)
def test_a_rollout_shows_its_share_and_why_it_has_no_other(notes: list[Noted], says: str) -> None:
    registry = registry_of(STARTED)
    decided(registry)
    for note in notes:
        registry.apply(note)
    name, sides, why = _told(found(registry), registry).splitlines()
    assert name == "rollout r"
    assert sides.endswith(", step 1 of 3: 1 % of the conversations")
    assert why == says


def test_versions_are_shown_by_their_names() -> None:
    registry = registry_of(STARTED)
    decided(registry)
    plan = found(registry).plan
    named = Version(name="shop-2", model="m", model_revision="r", manifest_sha256="a" * 64)
    registry.versions = {plan.version: Added(version=named, author="ann")}
    assert f"canary shop-2 ({plan.version}) beside champion {plan.champion}," in _told(found(registry), registry)


def test_one_that_no_controller_has_begun_names_the_command() -> None:
    registry: Registry = registry_of(STARTED)
    assert _told(found(registry), registry).endswith("start one: replyline rollout run")


def test_one_that_is_over_shows_how_it_ended() -> None:
    registry = registry_of(STARTED, Noted(rollout="r", kind="ended", reason="by hand", unix_ms=10))
    assert _told(found(registry), registry).splitlines()[-1] == "stopped: by hand"


@pytest.mark.parametrize(
    ("lease", "says"),
    [
        (None, "controller: no controller is running; type: replyline rollout run"),
        (Lease("pod-1:7", 60_000, 95_000), "controller: pod-1:7 since 1970-01-01T00:01:00Z, seen 5 s ago"),
        (
            Lease("pod-1:7", 60_000, 70_000),
            f"controller: no controller is running (the last, pod-1:7 {SINCE}); type: replyline rollout run",
        ),
    ],
    ids=["none", "one leads", "one was killed"],
)
def test_status_says_whether_a_controller_is_running(lease: Lease | None, says: str) -> None:
    assert _led(lease, 100_000) == says
