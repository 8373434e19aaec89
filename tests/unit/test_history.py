"""A conversation's turns while some are still being written: Redis answers in any order."""

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared import metrics
from shared.history import History
from shared.redis_settings import RedisSettings
from shared.turn import Turn

TURN = Turn(request_id="r", user="Where is it?", assistant="On its way.", source="model", asked_unix_ms=1)


async def test_a_turn_is_not_missed_whose_writing_ends_while_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis reads before it writes, and is heard of the writing first."""
    history = History(RedisSettings())

    async def append(**_: Any) -> int:
        return 1

    async def read(*_: Any) -> list[bytes]:
        await asyncio.gather(*history._tasks)
        return []

    monkeypatch.setattr(history, "_append", append)
    monkeypatch.setattr(history._redis, "lrange", read)
    history.remember("t", "s", TURN)
    assert await history.turns("t", "s", limit=4, before_unix_ms=2) == [TURN]
    assert await history.turns("t", "s", limit=4, before_unix_ms=2) == [], "it is no longer on its way"
    await history.close()


async def test_a_turn_that_cannot_be_written_leaves_the_others_and_is_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history = History(RedisSettings())
    written: list[object] = []

    async def append(*, keys: list[str], args: tuple[object, ...]) -> int:
        if "bad" in keys[0]:
            raise TypeError("a fault of our own")
        written.append(keys[0])
        return 1

    monkeypatch.setattr(history, "_append", append)
    count = metrics.faults.labels("history")._value
    before = count.get()
    with capture_logs():
        for session in ("bad", "good"):
            history.remember("t", session, TURN)
        await history.close()
    assert (len(written), count.get() - before, history._writing) == (1, 1, {})
