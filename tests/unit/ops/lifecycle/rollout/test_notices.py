"""Each event of a rollout is posted, signed, and no receiver delays a decision."""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway.outbound import signed_webhook
from gateway.outbound.calls import Calls
from gateway.outbound.signed_webhook import SignedWebhook
from gateway.outbound.standard_webhook import signed
from ops.lifecycle.rollout import notices as module
from ops.lifecycle.rollout.notices import Notices, notices
from ops.lifecycle.rollout.plan import pack
from ops.lifecycle.rollout.policy import Decision
from ops.lifecycle.rollout.records import Rollout, decisions, newest, record_of
from shared.settings.telemetry import RolloutSettings
from shared.telemetry import metrics
from shared.versions.registry import Noted, Registry
from shared.versions.state import Move
from tests.support.servers.called_server import Call, CalledServer, Reply
from tests.unit.ops.lifecycle.rollout.test_policy import BEFORE
from tests.unit.ops.lifecycle.rollout.test_policy import PLAN as POLICY_PLAN

KEY = b"k" * 32
NOW = 1_000_000_000_000
PLAN = replace(POLICY_PLAN, epoch=2)


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    for each in (module, signed_webhook):
        monkeypatch.setattr(each, "wire_unix_ms", lambda: NOW)
    monkeypatch.setattr(signed_webhook, "_FIRST_PAUSE_S", 0.0)


def registry_of(plan: Any = PLAN) -> Registry:
    """Return a registry in which a rollout has begun."""
    registry = Registry()
    for record in (
        Move(state=replace(BEFORE, epoch=1), author="ann", reason="use", unix_ms=0),
        Noted(rollout="r", kind="started", reason="new", unix_ms=NOW - 90_000, plan=pack(plan)),
    ):
        assert registry.apply(record)
    write(registry, Decision(kind="begin", reason="first"), 89_000)
    return registry


def write(registry: Registry, decision: Decision, ago_ms: int, **numbers: float) -> None:
    record = record_of(decision, rollout_of(registry), registry, numbers, NOW - ago_ms)
    assert record is not None
    assert registry.apply(record)


def note(registry: Registry, kind: str, reason: str, ago_ms: int) -> None:
    assert registry.apply(Noted(rollout="r", kind=kind, reason=reason, unix_ms=NOW - ago_ms))


def rollout_of(registry: Registry) -> Rollout:
    rollout = newest(registry)
    assert rollout is not None
    return rollout


def kinds(registry: Registry, *, is_frozen: bool = False) -> list[str]:
    return [each.kind for each in notices(rollout_of(registry), NOW, is_frozen=is_frozen)]


PROMOTE = Decision(kind="promote", reason="not worse", share=PLAN.steps[1])


@pytest.mark.parametrize(
    ("kind", "e", "outcome"),
    [("roll back", 1e9, "rolled_back"), ("finish", 0.0, "finished"), ("end", 0.0, "stopped")],
)
def test_each_step_and_each_end_is_a_notice_with_its_epoch(kind: Any, e: float, outcome: str) -> None:
    registry = registry_of()
    write(registry, PROMOTE, 70_000, e=0.5)
    write(registry, Decision(kind="step down", reason="degraded", share=PLAN.steps[0]), 60_000)
    write(registry, Decision(kind="load", reason="passed"), 50_000)
    write(registry, Decision(kind=kind, reason="the reason"), 40_000, e=e)
    write(registry, Decision(kind="ended", reason="the reason"), 39_000, e=e)
    found = list(notices(rollout_of(registry), NOW, is_frozen=False))
    assert [(each.kind, each.epoch) for each in found] == [
        ("started", 2),
        ("promoted", 3),
        ("stepped_down", 4),
        (outcome, 6),
    ]
    assert (found[1].reason, found[1].numbers) == ("not worse", {"e": 0.5})
    assert (found[-1].reason, found[-1].numbers) == ("the reason", {"e": e})


def test_another_authors_move_that_ends_a_rollout_is_a_notice() -> None:
    registry = registry_of()
    registry.apply(Move(state=replace(BEFORE, epoch=3), author="ann", reason="by hand", unix_ms=NOW - 9))
    note(registry, "ended", "ann moved the registry: by hand", 8)
    last = list(notices(rollout_of(registry), NOW, is_frozen=False))[-1]
    assert (last.kind, last.epoch, last.reason) == ("stopped", 3, "ann moved the registry: by hand")


@pytest.mark.parametrize(("ago_ms", "found"), [(59_000, []), (60_000, ["paused"])])
def test_a_pause_is_a_notice_once_it_lasts_a_minute(ago_ms: int, found: list[str]) -> None:
    registry = registry_of()
    note(registry, "paused", "paused by ann: a sale", ago_ms)
    assert kinds(registry)[1:] == found
    note(registry, "resumed", "resumed by ann", 1)
    assert kinds(registry)[1:] == []


def test_a_step_that_waits_for_an_approval_is_a_notice() -> None:
    registry = registry_of(replace(PLAN, approve=True))
    last = list(notices(rollout_of(registry), NOW, is_frozen=False))[-1]
    assert (last.kind, last.reason) == ("awaits_approval", "waits for: replyline rollout approve")


@pytest.mark.parametrize(("ago_ms", "found"), [(59_000, []), (60_000, ["frozen"])])
def test_a_freeze_is_a_notice_once_it_lasts_a_minute(ago_ms: int, found: list[str]) -> None:
    registry = registry_of()
    note(registry, "freeze", "gateway a is silent", ago_ms)
    assert kinds(registry, is_frozen=True)[1:] == found
    assert kinds(registry)[1:] == []  # the note is older than the decision
    note(registry, "wait", "healthy", 1)
    assert kinds(registry, is_frozen=True)[1:] == []


# --- the receiver


class Hanging:
    """A receiver that never answers."""

    calls = 0

    async def call(self, *_: object) -> bytes:
        self.calls += 1
        await asyncio.Event().wait()
        raise AssertionError


def notices_to(tmp_path: Path, url: str, calls: Any) -> Notices:
    (tmp_path / "secret").write_text("whsec_" + b64encode(KEY).decode())
    settings = RolloutSettings(webhook_url=url, webhook_secret_file=tmp_path / "secret")
    return Notices(SignedWebhook(settings, calls, "replyline rollout status", metrics.rollout_notices))


@pytest.fixture
async def calls() -> AsyncIterator[Calls]:
    calls = Calls({})
    yield calls
    await calls.close()


async def drained(receiver: Notices) -> None:
    await receiver._posting.drain(10)


async def test_a_notice_is_signed_and_tried_again_under_its_id_until_it_is_taken(tmp_path: Path, calls: Calls) -> None:
    """It is refused, then redirected; the redirection is not followed."""
    replies = [Reply(500), Reply(302, headers={"Location": "/inside"}), Reply(410)]

    def answer(_: Call) -> Reply:
        return replies.pop(0) if replies else Reply(204)

    rollout = rollout_of(registry_of())
    with CalledServer(answer).serve() as server:
        leader = notices_to(tmp_path, f"{server.url}/hook", calls)
        leader.observe(rollout)
        leader.observe(rollout)
        await drained(leader)
        leader.observe(rollout)
        await drained(leader)
    assert [(call.path, call.headers["webhook-id"]) for call in server.calls] == [
        ("/hook", f"r-started-{NOW - 89_000}")
    ] * 4
    last = server.calls[-1]
    expected = signed(KEY, last.headers["webhook-id"], last.body, NOW // 1_000)
    assert last.headers["webhook-signature"] == expected["webhook-signature"]
    body = json.loads(last.body)
    assert body["type"] == "rollout.started"
    assert body["data"] == {
        "rollout": "r",
        "version": PLAN.version,
        "champion": PLAN.champion,
        "kind": "started",
        "unix_ms": NOW - 89_000,
        "epoch": 2,
        "reason": "first",
        "numbers": {},
    }


@pytest.mark.parametrize("is_recorded", [True, False], ids=["recorded", "not yet recorded"])
async def test_the_next_leader_posts_what_a_dead_one_has_not_and_repeats_no_notice_that_is_recorded(
    tmp_path: Path, calls: Calls, is_recorded: bool
) -> None:
    """The first leader writes its decision and dies before or after it has posted the notice: never missed. What it
    had posted and could not record comes again under its id."""
    registry = registry_of()
    with CalledServer(lambda _: Reply()).serve() as server:
        first = notices_to(tmp_path, server.url, calls)
        first.observe(rollout_of(registry))
        await drained(first)
        for taken in first.taken if is_recorded else ():
            assert registry.apply(taken)
        write(registry, PROMOTE, 10)  # it dies here
        second = notices_to(tmp_path, server.url, calls)
        second.observe(rollout_of(registry))
        await drained(second)
    ids = [call.headers["webhook-id"] for call in server.calls]
    started, promoted = f"r-started-{NOW - 89_000}", f"r-promoted-{NOW - 10}"
    assert sorted(ids) == sorted([started] * (2 - is_recorded) + [promoted])
    assert all(each.what != "posted" for each in decisions(rollout_of(registry)))


async def test_a_receiver_that_hangs_delays_nothing_and_what_is_too_much_is_dropped(tmp_path: Path) -> None:
    hanging, registry = Hanging(), registry_of()
    leader = notices_to(tmp_path, "http://desk/", hanging)
    dropped = metrics.rollout_notices.labels("dropped")._value
    before = dropped.get()
    for number in range(33):
        share = PLAN.steps[1] if number % 2 == 0 else PLAN.steps[0]
        write(registry, Decision(kind="promote", reason="more", share=share), 1_000 - number)
    leader.observe(rollout_of(registry))
    leader.observe(rollout_of(registry))
    await asyncio.sleep(0)
    assert (hanging.calls, dropped.get() - before) == (32, 2)
    await leader.stand_by()
    await asyncio.sleep(0)
    assert hanging.calls == 32


async def test_a_leader_that_stands_by_posts_no_more_and_starts_again_when_it_leads(tmp_path: Path) -> None:
    hanging = Hanging()
    leader = notices_to(tmp_path, "http://desk/", hanging)
    for _ in range(2):
        leader.observe(rollout_of(registry_of()))
        await asyncio.sleep(0)
        await leader.stand_by()
    assert hanging.calls == 2


async def test_notices_too_old_or_without_an_address_are_not_posted(tmp_path: Path, monkeypatch: Any) -> None:
    hanging, rollout = Hanging(), rollout_of(registry_of())
    idle: Any = hanging
    Notices(SignedWebhook(RolloutSettings(), idle, "", metrics.rollout_notices)).observe(rollout)
    monkeypatch.setattr(module, "wire_unix_ms", lambda: NOW + 3_600_000)
    notices_to(tmp_path, "http://desk/", hanging).observe(rollout)
    await asyncio.sleep(0)
    assert hanging.calls == 0


async def test_a_record_of_no_possible_moment_is_not_posted(tmp_path: Path) -> None:
    hanging, registry = Hanging(), registry_of()
    registry.apply(Noted(rollout="r", kind="ended", reason="gone", unix_ms=2**60))
    leader = notices_to(tmp_path, "http://desk/", hanging)
    leader.observe(rollout_of(registry))
    await asyncio.sleep(0)
    assert hanging.calls == 1  # its start
    await leader.stand_by()
