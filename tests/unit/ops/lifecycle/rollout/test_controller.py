"""A controller that stands by shows nothing of a rollout: an alert would read what it saw when it led."""

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import REGISTRY

from ops.lifecycle.rollout.controller import Controller
from shared.settings import Settings
from shared.telemetry import metrics


async def nothing(*_: object) -> None:
    """Do nothing."""


@pytest.mark.parametrize(("leads", "shown"), [(False, None), (None, 1.0)])
async def test_who_leads_no_more_shows_no_state(leads: bool | None, shown: float | None) -> None:
    """While a rebalance goes on nobody knows who leads."""
    stop = asyncio.Event()

    async def act(turn: Callable[[], Awaitable[None]], _outage: object) -> None:
        metrics.rollout_state.labels("hold").set(1)
        await turn()
        stop.set()

    async def answer() -> bool | None:
        return leads

    client = SimpleNamespace(start=nothing, stop=nothing)
    watch = SimpleNamespace(follow=nothing, follow_gateways=nothing, look=nothing, reports=client)
    parts: dict[str, Any] = dict.fromkeys(("registry", "producer", "observations"), client)
    parts |= {"leadership": SimpleNamespace(act=act, leads=answer, stop=nothing), "watch": watch}
    parts |= {"prometheus": SimpleNamespace(follow=nothing)}
    parts |= {
        "notices": SimpleNamespace(stand_by=nothing, webhook=SimpleNamespace(calls=SimpleNamespace(close=nothing)))
    }
    await Controller(Settings().kafka, **parts).run(stop)
    assert REGISTRY.get_sample_value("replyline_rollout_state", {"state": "hold"}) == shown
