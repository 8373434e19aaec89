"""An edge's journal and the centre's end of it: each turn is stored once, and none of an erased conversation."""

import random
from collections.abc import AsyncIterator
from typing import Any

import fakeredis
import msgspec
import pytest
import pytest_asyncio

from shared.conversation import history as history_module
from shared.conversation.history import History
from shared.conversation.journal import Journal, Journalled
from shared.conversation.turn import Turn
from shared.errors import StoreUnavailable
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

TENANT = "demo"
SESSION = SessionKey(TENANT, "s")
ALL = 1 << 30
decode = msgspec.json.Decoder(list[Journalled]).decode


class Site:
    """An edge or a centre: a Redis, and what one of its processes has open to it."""

    def __init__(self, patch: pytest.MonkeyPatch, *, edge: bool, server: Any = None) -> None:
        self.server = server or fakeredis.FakeServer(version=(7,))
        patch.setattr("shared.redis.client.async_redis", lambda *_, **__: fakeredis.FakeAsyncRedis(server=self.server))
        settings = RedisSettings(timeout_ms=10_000)
        self.history = History(settings, journal_of=TENANT if edge else None)
        self.journal = Journal(settings)

    async def entries(self, max_bytes: int = ALL) -> list[bytes]:
        return await self.journal.first(max_bytes)

    async def take(self, body: list[bytes]) -> None:
        for entry in decode(b"[" + b",".join(body) + b"]"):
            assert entry.turn is not None
            await self.history.take(SessionKey(TENANT, entry.session_id), entry.turn, entry)

    async def stored(self, session: SessionKey = SESSION) -> list[str]:
        redis = fakeredis.FakeAsyncRedis(server=self.server)
        values = await redis.lrange(session.redis_key("turns"), 0, -1)
        return [msgspec.msgpack.decode(value, type=Turn).request_id for value in values]


@pytest_asyncio.fixture
async def centre(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    yield Site(monkeypatch, edge=False)


@pytest_asyncio.fixture
async def edge(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Site]:
    yield Site(monkeypatch, edge=True)


def turn(name: str, generation: int = 0) -> Turn:
    return Turn(request_id=name, user=f"What of {name}?", output_text="Yes.", source="faq", generation=generation)


async def said(site: Site, *names: str, session: SessionKey = SESSION) -> None:
    for name in names:
        assert await site.history.append(session, turn(name), journal=True)


async def test_numbers_grow_within_a_process_and_no_two_processes_share_an_epoch(
    edge: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    await said(edge, "a", "b")
    await said(Site(monkeypatch, edge=True, server=edge.server), "c")
    first, second, third = decode(b"[" + b",".join(await edge.entries()) + b"]")
    assert first.epoch == second.epoch != third.epoch
    assert first.sequence < second.sequence < third.sequence


@pytest.mark.parametrize("seed", range(8))
async def test_a_turn_is_stored_once_however_often_and_in_what_pieces_it_is_sent(
    edge: Site, centre: Site, seed: int
) -> None:
    """The reply to a body is lost, or the body is cut off behind any entry."""
    chance, names = random.Random(seed), [f"r{number}" for number in range(15)]
    waiting = [*names]
    while waiting or await edge.entries():
        if waiting and chance.random() < 0.5:
            await said(edge, waiting.pop(0))
        body = await edge.entries(chance.choice([1, 400, ALL]))
        await centre.take(body[: chance.randint(0, len(body))])
        if chance.random() < 0.4:
            await centre.take(body)
            await edge.journal.drop(body)
    assert await centre.stored() == names
    assert await edge.journal.size() == (0, 0)


async def test_a_turn_is_stored_once_though_fifty_others_came_in_between(edge: Site, centre: Site) -> None:
    await said(edge, "old")
    body = await edge.entries()
    await centre.take(body)
    for number in range(50):
        await centre.history.append(SESSION, turn(f"n{number}"))
    await centre.take(body)
    assert "old" not in await centre.stored()
    assert len(await centre.stored()) == 50


async def test_an_edge_restored_from_a_backup_stores_neither_twice_nor_loses_what_follows(
    edge: Site, centre: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its processes may continue, or be started again."""
    await said(edge, "a", "b")
    dump = {key: await fakeredis.FakeAsyncRedis(server=edge.server).dump(key) for key in await keys_of(edge)}
    await said(edge, "c")
    await centre.take(await edge.entries())
    redis = fakeredis.FakeAsyncRedis(server=edge.server)
    await redis.flushall()
    for key, value in dump.items():
        await redis.restore(key, 0, value)
    await said(edge, "d")
    await said(Site(monkeypatch, edge=True, server=edge.server), "e")
    await centre.take(await edge.entries())
    assert await centre.stored() == ["a", "b", "c", "d", "e"]


async def keys_of(site: Site) -> list[bytes]:
    found: list[bytes] = await fakeredis.FakeAsyncRedis(server=site.server).keys("*")
    return found


async def test_two_edges_from_one_backup_do_not_take_each_others_numbers(
    edge: Site, centre: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    twin = Site(monkeypatch, edge=True)
    await said(twin, "slow")
    await said(edge, "fast")
    await centre.take(await edge.entries())
    await centre.take(await twin.entries())
    assert sorted(await centre.stored()) == ["fast", "slow"]


@pytest.mark.parametrize(("generation", "stored"), [(4, []), (5, ["late"])])
async def test_no_turn_of_an_erased_generation_is_stored(centre: Site, generation: int, stored: list[str]) -> None:
    await centre.history.delete(SESSION, generation=5)
    late = turn("late", generation)
    await centre.history.take(SESSION, late, Journalled(session_id="s", turn=late, epoch="e", sequence=1))
    assert await centre.stored() == stored


@pytest.mark.parametrize("told", [False, True])
async def test_an_erased_conversations_turns_leave_the_journal(edge: Site, told: bool) -> None:
    """Whether the customer erased it here or at the centre; another's stay."""
    other = SessionKey(TENANT, "s2")
    await said(edge, "a", "b")
    await said(edge, "c", session=other)
    generation = await edge.history.delete(SESSION, generation=7, journal=not told)
    left = decode(b"[" + b",".join(await edge.entries()) + b"]")
    assert [entry.session_id for entry in left if entry.turn is not None] == ["s2"]
    assert [entry.erased for entry in left if entry.turn is None] == ([] if told else [generation])
    assert (await edge.journal.size())[1] == sum(map(len, await edge.entries()))


async def test_entries_are_removed_by_what_they_are_and_not_by_how_many(edge: Site) -> None:
    """Two processes send the same journal."""
    await said(edge, "a", "b", "c")
    body = await edge.entries()
    await edge.journal.drop(body[:2])
    await edge.journal.drop(body[:2])
    assert await edge.entries() == body[2:]


async def test_only_erasures_stay_where_the_centre_cannot_say_what_was_erased(edge: Site) -> None:
    await said(edge, "a")
    await edge.history.delete(SessionKey(TENANT, "t"), generation=7)
    await edge.journal.drop_turns()
    (left,) = await edge.entries()
    assert (decode(b"[" + left + b"]")[0].erased, await edge.journal.size()) == (7, (1, len(left)))


async def test_a_full_journal_takes_no_turn_and_then_no_erasure(edge: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "MAX_JOURNAL_BYTES", 200)
    await said(edge, "a", "b", "c")
    num, num_bytes = await edge.journal.size()
    assert num < 3
    assert await edge.stored() == ["a", "b", "c"], "the conversation goes on here"
    with pytest.raises(StoreUnavailable, match="full"):  # noqa: PT012 - some fit
        for number in range(20):
            await edge.history.delete(SessionKey(TENANT, f"t{number}"), generation=7)
    assert num_bytes < (await edge.journal.size())[1] < 1_000
