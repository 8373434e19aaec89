"""Resolving a hand-off never resolves the conversation's next one."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from shared.conversation.handoff_store import HandoffStore
from shared.conversation.handoffs import Handoff
from shared.conversation.history import History
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

OPEN_S = 60.0


@dataclass
class TwoOfOneConversation:
    store: HandoffStore
    first: Handoff
    second: Handoff


@pytest_asyncio.fixture
async def two(redis_server: Any, unique: Any) -> AsyncIterator[TwoOfOneConversation]:
    session_id = unique("session")
    first = Handoff(
        id=unique("handoff"),
        tenant="demo",
        session_id=session_id,
        reason="requested",
        language="en",
        created_unix_ms=1,
        transcript=SessionKey("demo", session_id).redis_key("turns"),
    )
    store = HandoffStore(RedisSettings(url=redis_server.url, timeout_ms=10_000))
    yield TwoOfOneConversation(store, first, replace(first, id=unique("handoff"), created_unix_ms=2))
    await store.close()


async def test_only_the_open_hand_off_is_resolved_and_only_once(two: TwoOfOneConversation) -> None:
    assert not await two.store.remove(two.first)
    await two.store.put(two.first, generation=0, open_s=OPEN_S)
    assert not await two.store.remove(two.second)
    assert await two.store.remove(two.first)
    assert not await two.store.remove(two.first)


async def test_a_hand_off_opened_during_the_resolution_stays(
    two: TwoOfOneConversation, monkeypatch: pytest.MonkeyPatch
) -> None:
    await two.store.put(two.first, generation=0, open_s=OPEN_S)
    read = two.store._values.find

    async def read_shortly_before(session: SessionKey) -> bytes | None:
        value = await read(session)
        await two.store.put(two.second, generation=0, open_s=OPEN_S)
        return value

    monkeypatch.setattr(two.store._values, "find", read_shortly_before)
    assert not await two.store.remove(two.first)
    monkeypatch.undo()
    assert await two.store.find(SessionKey("demo", two.first.session_id)) == two.second


async def test_a_hand_off_of_an_erased_generation_is_dropped_and_the_next_generations_kept(
    two: TwoOfOneConversation, redis_server: Any
) -> None:
    """Clocks do not matter: the erasure's gateway was an hour ahead."""
    ahead = two.second.created_unix_ms + 3_600_000
    history = History(RedisSettings(url=redis_server.url, timeout_ms=10_000))
    assert await two.store.generation(SessionKey("demo", two.first.session_id)) == 0
    assert await history.delete(SessionKey("demo", two.first.session_id), generation=ahead) == ahead
    await history.close()
    assert not await two.store.put(two.first, generation=ahead - 1, open_s=OPEN_S)
    assert await two.store.find(SessionKey("demo", two.first.session_id)) is None
    assert await two.store.put(
        two.second, generation=await two.store.generation(SessionKey("demo", two.first.session_id)), open_s=OPEN_S
    )
    assert await two.store.find(SessionKey("demo", two.first.session_id)) == two.second
