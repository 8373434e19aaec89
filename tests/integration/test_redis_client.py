"""A burst of calls to Redis waits for its connections; it is no outage."""

import asyncio
from typing import Any

import pytest
from redis.exceptions import RedisError

from gateway.charges import Caller, Tariff
from gateway.quotas import Quotas
from shared.errors import ProtocolError
from shared.gateway_settings import HandoffSettings
from shared.history import History
from shared.quota_settings import QuotaSettings
from shared.redis_client import async_redis
from shared.redis_settings import RedisSettings

AT_ONCE = 300


@pytest.fixture
def settings(redis_server: Any) -> RedisSettings:
    """A busy machine may take its time."""
    return RedisSettings(url=redis_server.url, timeout_ms=10_000)


async def test_what_was_erased_is_known_to_all_who_ask_at_once(settings: RedisSettings) -> None:
    history = History(settings)
    await history.delete("demo", "burst", asked_unix_ms=2_000)
    assert all(await asyncio.gather(*(history.erased_since("demo", "burst", 1_000) for _ in range(AT_ONCE))))
    await history.close()


async def test_the_gateways_count_together_however_many_ask_at_once(settings: RedisSettings, unique: Any) -> None:
    """One of them counts alone where it believes Redis to be away, and lets as many in again."""
    tariff = Tariff(QuotaSettings(tenant_per_minute=10), HandoffSettings())
    one, other = (Quotas(tariff, settings) for _ in range(2))
    caller = Caller(unique("shop"), "s")

    async def passes(quotas: Quotas) -> bool:
        try:
            await quotas.take("ask", caller)
        except ProtocolError:
            return False
        return True

    for quotas in (one, other):
        passed = await asyncio.gather(*(passes(quotas) for _ in range(AT_ONCE)))
        assert sum(passed) == (10 if quotas is one else 0)
        await quotas.close()


async def test_closing_the_client_closes_its_connections(settings: RedisSettings) -> None:
    client = async_redis(settings, timeout_ms=settings.timeout_ms)
    await asyncio.gather(*(client.ping() for _ in range(5)))
    connections = client.connection_pool._available_connections
    assert connections
    assert all(connection.is_connected for connection in connections)
    await client.aclose()
    assert not any(connection.is_connected for connection in connections)


async def test_who_gets_no_connection_in_time_is_told(settings: RedisSettings) -> None:
    client = async_redis(settings, timeout_ms=50)
    pool = client.connection_pool
    taken = [await pool.get_connection() for _ in range(pool.max_connections)]
    with pytest.raises(RedisError, match="No connection available"):
        await client.ping()
    for connection in taken:
        await pool.release(connection)
    assert await client.ping()
    await client.aclose()
