"""A burst of Redis calls waits for connections; it is no outage."""

import asyncio
import shutil
from collections.abc import Iterator
from typing import Any

import hiredis
import pytest
from redis.asyncio import Redis

from ops.stack.embedded import EmbeddedRedis, find_redis_server
from shared.conversation.erasures import MARKED_FOR_S
from shared.conversation.history import History
from shared.conversation.turn import Turn
from shared.errors import StoreUnavailable
from shared.redis.calls import RedisCalls
from shared.redis.client import MAX_CONNECTIONS, RedisClient, async_redis
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.support.call_counts import counted_calls

AT_ONCE = 300
MOST_FUNCTIONS = 190


@pytest.fixture
def settings(redis_server: Any) -> RedisSettings:
    """A busy machine may be slow."""
    return RedisSettings(url=redis_server.url, timeout_ms=10_000)


async def test_concurrent_callers_all_learn_of_an_erasure(settings: RedisSettings) -> None:
    history = History(settings)
    assert await history.delete(SessionKey("demo", "burst"), generation=2_000) == 2_000
    assert set(await asyncio.gather(*(history.generation(SessionKey("demo", "burst")) for _ in range(AT_ONCE)))) == {
        2_000
    }
    await history.close()


async def test_an_erasures_generation_is_later_than_all_before_it(settings: RedisSettings, unique: Any) -> None:
    """Of two gateways the one with the slow clock erases second; then Redis loses its state."""
    history, name = History(settings), unique("erased")
    assert await history.generation(SessionKey("demo", name)) == 0
    assert [
        await history.delete(SessionKey("demo", name), generation=told) for told in (2_000, 1_000, 2_001, 5_000)
    ] == [*(2_000, 2_001, 2_002, 5_000)]
    turns = [
        Turn(request_id=f"r{at}", user="q", output_text="a", source="model", asked_unix_ms=1, generation=at)
        for at in (0, 4_999, 5_000, 5_001)
    ]
    assert [await history.append(SessionKey("demo", name), turn) for turn in turns] == [False, False, True, True]
    async with async_redis(settings, timeout_ms=10_000) as redis:
        await redis.delete(SessionKey("demo", name).redis_key("erased"))
    assert await history.append(SessionKey("demo", name), turns[0])
    assert await history.turns(SessionKey("demo", name), limit=5, before_unix_ms=2, generation=5_000) == turns[2:]
    await history.close()


async def test_closing_the_client_closes_its_connections(settings: RedisSettings) -> None:
    client = async_redis(settings, timeout_ms=10_000)
    await asyncio.gather(*(client.ping() for _ in range(5)))
    connections = client.connection_pool._available_connections
    assert connections
    assert all(connection.is_connected for connection in connections)
    await client.aclose()
    assert not any(connection.is_connected for connection in connections)


async def test_a_call_without_a_free_connection_waits_up_to_its_callers_limit(
    settings: RedisSettings,
) -> None:
    nodes, calls = RedisClient(settings, timeout_ms=settings.timeout_ms), RedisCalls(settings, logs_outages=False)
    may_end = asyncio.Event()

    async def holds_its_connection(redis: Redis) -> bool:
        async with redis.client() as connection:
            await may_end.wait()
            return bool(await connection.ping())

    holders = [asyncio.create_task(nodes.call(holds_its_connection)) for _ in range(MAX_CONNECTIONS)]
    waiting = asyncio.create_task(calls.bounded(nodes.call(lambda redis: redis.ping())))
    await asyncio.sleep(0)  # all have started
    hurried = RedisCalls(settings.model_copy(update={"timeout_ms": 50}), logs_outages=False)
    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        await hurried.bounded(nodes.call(lambda redis: redis.ping()))
    assert not waiting.done()
    may_end.set()
    assert await waiting
    assert all(await asyncio.gather(*holders))
    await nodes.close()


@pytest.mark.parametrize("extra", [b"$5\r\nother\r\n", None], ids=["an answer too many", "closed while idle"])
async def test_a_connection_that_is_not_sound_is_not_used_again(extra: bytes | None) -> None:
    """Another caller would get the answer that is left; after a restart the first call would fail."""
    peers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer)
        asked = hiredis.Reader()
        while data := await reader.read(65_536):
            asked.feed(data)
            while (command := asked.gets()) is not False:
                answers = {b"HELLO": b"%1\r\n+proto\r\n:3\r\n", b"ECHO": b"+%s\r\n" % command[-1]}
                writer.write(answers.get(command[0].upper(), b"+OK\r\n"))

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    client = RedisClient(RedisSettings(url=f"redis://127.0.0.1:{server.sockets[0].getsockname()[1]}"), timeout_ms=5_000)
    assert await client.call(lambda redis: redis.echo("mine")) == b"mine"
    (peer,) = peers
    if extra is None:
        peer.close()
    else:
        peer.write(extra)
    await asyncio.sleep(0.05)
    assert await client.call(lambda redis: redis.echo("yours")) == b"yours"
    await client.close()
    for each in peers:
        each.close()
    server.close()


async def test_a_call_calls_few_functions(settings: RedisSettings) -> None:
    """A question makes five calls. With the metrics and retries of redis-py each of them calls 283 functions."""
    client, calls = RedisClient(settings, timeout_ms=settings.timeout_ms), RedisCalls(settings, logs_outages=False)
    script = client.script("return redis.call('GET', KEYS[1])")
    await calls.bounded(script(["{few}"], ()))  # connect, and load the script
    with counted_calls() as count:
        await calls.bounded(script(["{few}"], ()))
    assert count.num <= MOST_FUNCTIONS
    await client.close()


async def test_remembered_turns_are_bounded_and_expire(settings: RedisSettings, unique: Any) -> None:
    """The newest fifty turns are kept for the configured time."""
    history, session = History(settings), SessionKey("demo", unique("long"))
    turns = [Turn(request_id=f"r{at}", user="q", output_text="a", source="model", asked_unix_ms=at) for at in range(52)]
    for turn in turns:
        assert await history.append(session, turn)
    assert await history.turns(session, limit=60, before_unix_ms=60) == turns[2:]
    async with async_redis(settings, timeout_ms=10_000) as redis:
        assert settings.history_ttl_s - 60 <= await redis.ttl(session.redis_key("turns")) <= settings.history_ttl_s
    await history.close()


async def test_an_erasure_leaves_only_its_mark(settings: RedisSettings, unique: Any) -> None:
    """Stored data is deleted; the mark stays as long as a request may live. A mark that is no number counts as none."""
    history, session = History(settings), SessionKey("demo", unique("erased"))
    async with async_redis(settings, timeout_ms=10_000) as redis:
        for known in (None, "no number"):
            if known is not None:
                await redis.set(session.redis_key("erased"), known)
            await redis.rpush(session.redis_key("turns"), "a turn")
            await redis.mset({session.redis_key(what): what for what in ("handoff", "running")})
            assert await history.delete(session, generation=1) == 1
            assert await redis.exists(*map(session.redis_key, ("turns", "handoff", "running"))) == 0
            assert MARKED_FOR_S - 60 <= await redis.ttl(session.redis_key("erased")) <= MARKED_FOR_S
    await history.close()


@pytest.fixture(params=[find_redis_server(), shutil.which("redis-server")], ids=["embedded", "system"])
def full_redis(request: pytest.FixtureRequest) -> Iterator[EmbeddedRedis]:
    """A Redis that contains a conversation and is full."""
    server = EmbeddedRedis(binary=request.param, max_memory_mb=8, settings=["maxmemory-policy noeviction"])
    yield server
    server.stop()


async def fill(server: EmbeddedRedis) -> None:
    """Fill it to twice its limit."""
    async with Redis.from_url(server.url) as redis:
        await redis.set("other", b"x" * (1 << 20))
        await redis.config_set("maxmemory", str(1 << 19))


async def test_a_full_redis_still_erases_and_serves_reads(full_redis: EmbeddedRedis) -> None:
    """Redis 6 and newer versions report differently that a script found no memory."""
    history, turn = (
        History(RedisSettings(url=full_redis.url, timeout_ms=5_000)),
        Turn(request_id="r1", user="q", output_text="a", source="model", asked_unix_ms=1),
    )
    assert await history.append(SessionKey("demo", "s"), turn)
    await fill(full_redis)
    assert await history.append(SessionKey("demo", "other"), turn) is None
    assert await history.turns(SessionKey("demo", "s"), limit=1, before_unix_ms=2) == [turn], "it is still called"
    for name, generation in (("s", 7), ("never said a word", 8)):
        assert await history.delete(SessionKey("demo", name), generation=generation) == generation
        assert await history.generation(SessionKey("demo", name)) == generation
    assert await history.turns(SessionKey("demo", "s"), limit=1, before_unix_ms=2) == []
    await history.close()


@pytest.mark.parametrize("policy", ["allkeys-lru", "volatile-ttl"])
async def test_a_conversation_is_remembered_in_a_redis_that_evicts(policy: str) -> None:
    """It is full of KV once the demo has had a few hundred conversations."""
    server = EmbeddedRedis(max_memory_mb=8, settings=[f"maxmemory-policy {policy}"])
    async with Redis.from_url(server.url) as redis:
        for number in range(40):
            await redis.set(f"kv{number}", b"x" * (1 << 18), ex=600)
    history = History(RedisSettings(url=server.url, timeout_ms=5_000))
    for number in range(40):
        history._writing._looked_s = float("-inf")
        turn = Turn(request_id="r", user="q" * 50_000, output_text="a", source="model", asked_unix_ms=1)
        history.remember(SessionKey("demo", f"s{number}"), turn)
        async with asyncio.timeout(10):
            while history._writing:  # noqa: ASYNC110 - until all is written
                await asyncio.sleep(0)
    assert await history.turns(SessionKey("demo", "s39"), limit=1, before_unix_ms=2) == [turn]
    await history.close()
    server.stop()


async def test_one_tenant_leaves_memory_in_redis_to_the_others(full_redis: EmbeddedRedis, unique: Any) -> None:
    """It asks ten times as much, with long texts."""
    history, flood = History(RedisSettings(url=full_redis.url, timeout_ms=5_000)), "x" * 20_000
    history._writing._looked_s = float("inf")
    for number in range(400):
        if number % 5 == 0:
            history._writing._shares.used = await history._redis.memory_used()
        history.remember(
            SessionKey("flood", f"f{number}"),
            Turn(request_id=f"f{number}", user=flood, output_text=flood, source="model", asked_unix_ms=1),
        )
        if number % 10 == 0:
            history.remember(
                SessionKey("small", f"s{number}"),
                Turn(request_id=f"s{number}", user="q", output_text="a", source="model", asked_unix_ms=1),
            )
        async with asyncio.timeout(10):
            while history._writing:  # noqa: ASYNC110 - until all is written
                await asyncio.sleep(0)
    assert 0.5 < await history._redis.memory_used() < 1
    kept = [
        await history.turns(SessionKey("small", f"s{number}"), limit=1, before_unix_ms=2)
        for number in range(0, 400, 10)
    ]
    assert all(kept)
    assert not await history.turns(SessionKey("flood", "f399"), limit=1, before_unix_ms=2)
    await history.close()
