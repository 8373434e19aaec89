"""What a load reports where its server goes away."""

import asyncio
import os
import time
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from rich.console import Console

from ops.client.dialogue import CONNECTION_LOST
from ops.load import clients as load
from ops.load.clients import Load, Question
from ops.load.connection import ChatConnection
from ops.stack.processes import ServiceError
from tests.bench import memory

ONE = Question(text="?", max_output_tokens=1, deadline_ms=1_000)
LOST = cast("ChatConnection", SimpleNamespace(lost=True, num_inflight=0))


async def test_what_was_not_asked_any_more_is_lost_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """As is what waited: a server that dies in the middle does not answer half of its load well."""
    monkeypatch.setattr(load, "_POLL_S", 0.0)
    asked = Load(url="", _connections=[LOST])
    start_s = time.monotonic()
    await asked.open_loop([ONE] * 3, [0.0, 60.0, 61.0], lambda _: None)
    assert [outcome.error for outcome in asked.outcomes] == [CONNECTION_LOST] * 3
    assert asked.outcomes[-1].scheduled_s >= start_s + 61.0


class EndedLoad:
    """Every connection is lost at once, or the client fails."""

    def __init__(self, error: Exception | None) -> None:
        self.outcomes: list[Any] = []
        self._error = error

    async def open(self, _: int) -> None:
        """There is nothing to open."""

    async def closed_loop(self, *_: Any) -> None:
        if self._error is not None:
            raise self._error

    def close(self) -> None:
        """Nothing is open."""


async def watch_nothing(*_: Any) -> None:
    await asyncio.Event().wait()


async def fill(monkeypatch: pytest.MonkeyPatch, error: Exception | None, texts: Sequence[str] = ("?",)) -> None:
    monkeypatch.setattr(memory, "Load", lambda **_: EndedLoad(error))
    monkeypatch.setattr(memory, "_watch", watch_nothing)
    await memory._fill(os.getpid(), "", "", texts, 10.0, Console(quiet=True))


async def test_a_load_that_ends_early_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ServiceError, match="the load ended early"):
        await fill(monkeypatch, None)


async def test_what_ended_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ZeroDivisionError):
        await fill(monkeypatch, ZeroDivisionError())
