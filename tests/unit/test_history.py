"""A conversation's turns while some are still being written: Redis answers in any order."""

import asyncio
from typing import Any

import pytest

from shared.history import History
from shared.redis_settings import RedisSettings
from shared.turn import Turn

TURN = Turn(request_id="r", user="Where is it?", assistant="On its way.", source="model", asked_unix_ms=1)


async def test_a_turn_is_not_missed_whose_writing_ends_while_the_others_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Redis reads before it writes, and is heard of the writing first."""
    history = History(RedisSettings())

    async def append(*_: Any) -> int:
        return 1

    async def read(*_: Any) -> list[bytes]:
        await asyncio.gather(*history._tasks)
        return []

    monkeypatch.setattr(history, "_append", append)
    monkeypatch.setattr(history._redis, "call", read)
    history.remember("t", "s", TURN)
    assert await history.turns("t", "s", limit=4, before_unix_ms=2) == [TURN]
    assert await history.turns("t", "s", limit=4, before_unix_ms=2) == [], "it is no longer on its way"
    await history.close()
