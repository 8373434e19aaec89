"""What a load reports where its server goes away."""

import time
from types import SimpleNamespace
from typing import cast

import pytest

from ops.client.dialogue import CONNECTION_LOST
from ops.load import clients as load
from ops.load.clients import Load, Question
from ops.load.connection import ChatConnection

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
