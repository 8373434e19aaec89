"""A standby controller measures the load, and exports no metrics of a rollout, which an alert would read."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ops.lifecycle.rollout.controller import Controller
from ops.lifecycle.rollout.plan import pack
from ops.lifecycle.rollout.records import POSTED
from ops.lifecycle.rollout.surroundings import Surroundings
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.telemetry import metrics
from shared.versions.registry import Noted, Registry
from tests.unit.ops.lifecycle.rollout.test_health import PLAN, STATE, worker


async def nothing(*_: object) -> None:
    """Do nothing."""


async def take_a_turn(
    leads: bool | None, registry: Registry, around: Surroundings, taken: list[Noted] | None = None
) -> None:
    """Run a controller for one turn, after notices were `taken`."""
    stop = asyncio.Event()

    async def append(_producer: object, _topic: str, record: Noted) -> bool:
        return registry.apply(record)

    async def act(turn: Callable[[], Awaitable[None]], _outage: object) -> None:
        await turn()
        stop.set()

    async def answer() -> bool | None:
        return leads

    log = {"catch_up": nothing, "report": lambda: None, "registry": registry, "append": append}
    client = SimpleNamespace(start=nothing, stop=nothing, **log)
    watch = SimpleNamespace(follow=nothing, follow_gateways=nothing, look=nothing, reports=client, around=around)
    parts: dict[str, Any] = dict.fromkeys(("registry", "producer", "observations"), client)
    parts |= {"leadership": SimpleNamespace(act=act, leads=answer, stop=nothing), "watch": watch}
    parts |= {"prometheus": SimpleNamespace(follow=nothing, bounded=lambda health, _plan: health)}
    webhook = SimpleNamespace(calls=SimpleNamespace(close=nothing))
    notices = SimpleNamespace(stand_by=nothing, webhook=webhook, taken=taken or [], observe=lambda _: None)
    parts |= {"notices": notices}
    await Controller(Settings().kafka, **parts).run(stop)


@pytest.mark.parametrize(("leads", "shown"), [(False, None), (None, 1.0)])
async def test_who_leads_no_more_shows_no_state(leads: bool | None, shown: float | None) -> None:
    """During a rebalance the leader is not known."""
    metrics.rollout_state.labels("hold").set(1)
    await take_a_turn(leads, Registry(), Surroundings())
    assert REGISTRY.get_sample_value("replyline_rollout_state", {"state": "hold"}) == shown


@pytest.mark.parametrize("leads", [False, None])
async def test_a_standby_knows_the_load_before_it_leads(leads: bool | None) -> None:
    """Else one that begins to lead in a lull would promote into too few slots."""
    registry, now = Registry(), now_unix_ms()
    registry.apply(Noted(rollout="r", kind="started", reason="", unix_ms=0, plan=pack(PLAN)))
    around = Surroundings(since_unix_ms=now - 100_000, faults=[])
    around.observe_worker("canary-1", worker("canary", "new", running=4, waiting=5), now)
    await take_a_turn(leads, registry, around)
    around.observe_worker("canary-1", worker("canary", "new", running=0, waiting=0), now)
    assert around.health(PLAN, STATE, 0.0, now + 1_000).busy >= 8


async def test_the_leader_records_the_notices_that_were_taken() -> None:
    registry, taken = Registry(), [Noted(rollout="r", kind=POSTED, reason="r-started-1", unix_ms=1)]
    await take_a_turn(True, registry, Surroundings(), taken)
    assert [note.reason for note in registry.notes] == ["r-started-1"]
    assert taken == []
