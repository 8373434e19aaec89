"""Redis has applied a write, and its reply is late or lost: the write that is tried again stores nothing twice."""

from typing import Any

import pytest
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from shared.conversation.history import History
from shared.conversation.journal import JOURNAL_KEYS
from shared.conversation.turn import Turn
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.support.system import eventually

LOST = 2


@pytest.mark.parametrize("at_edge", [False, True], ids=["centre", "edge"])
async def test_a_turn_whose_reply_is_lost_is_stored_once(redis_server: Any, unique: Any, *, at_edge: bool) -> None:
    tenant = unique("tenant")
    session, admin = SessionKey(tenant, "s"), Redis.from_url(redis_server.url)
    admin.delete(*JOURNAL_KEYS)
    history = History(RedisSettings(url=redis_server.url, timeout_ms=10_000), journal_of=tenant if at_edge else None)
    write, tries = history._append, 0

    async def lose_replies(*given: Any) -> Any:
        nonlocal tries
        done, tries = await write(*given), tries + 1
        if tries <= LOST:
            raise RedisConnectionError("reset")
        return done

    history._append = lose_replies  # type: ignore[assignment]
    for number in range(2):
        turn = Turn(request_id=f"r{number}", user="Where is it?", output_text="On its way.", source="model")
        history.remember(session, turn)
    await eventually(lambda: not history._writing)
    stored = [admin.llen(key) for key in (session.redis_key("turns"), JOURNAL_KEYS[0])]
    admin.delete(*JOURNAL_KEYS)
    admin.close()
    await history.close()
    assert (tries, stored) == (LOST + 2, [2, 2 if at_edge else 0])
