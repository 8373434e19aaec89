"""Requests a minute, counted by all gateways together; by each alone while Redis is away, and nobody waits for it."""

import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio

from gateway.quotas import Quotas
from shared.errors import ProtocolError
from shared.redis_settings import RedisSettings
from shared.settings import LimitSettings

MakeQuotas = Callable[..., Quotas]


@pytest_asyncio.fixture
async def make_quotas(redis_server: Any) -> AsyncIterator[MakeQuotas]:
    made: list[Quotas] = []

    def make(**limits: Any) -> Quotas:
        redis = RedisSettings(url=redis_server.url, timeout_ms=200, retry_after_ms=10_000)
        made.append(Quotas(LimitSettings(**limits), redis))
        return made[-1]

    yield make
    for quotas in made:
        await quotas.close()


async def taken(quotas: Quotas, tenant: str, subject: str, *, tries: int) -> int:
    """So many of the tries passed; the others were told when to come again."""
    refusals = [error for _ in range(tries) if (error := await refusal(quotas, tenant, subject)) is not None]
    for error in refusals:
        assert (error.code, error.kind, error.retriable) == ("rate_limited", "rate_limit_error", True)
        assert error.retry_after_ms is not None
        assert 0 < error.retry_after_ms <= 60_001
    return tries - len(refusals)


async def refusal(quotas: Quotas, tenant: str, subject: str) -> ProtocolError | None:
    try:
        await quotas.take(tenant, subject)
    except ProtocolError as error:
        return error
    return None


async def test_a_subject_has_its_requests_at_all_gateways_together(
    make_quotas: MakeQuotas, unique: Callable[[str], str]
) -> None:
    one, other = (make_quotas(subject_requests_per_minute=5) for _ in range(2))
    shop = unique("shop")
    assert await taken(one, shop, "alice", tries=3) + await taken(other, shop, "alice", tries=9) == 5
    assert await taken(one, shop, "bob", tries=9) == 5
    assert await taken(one, unique("shop"), "alice", tries=9) == 5


async def test_a_tenant_has_its_requests_whoever_asks(make_quotas: MakeQuotas, unique: Callable[[str], str]) -> None:
    quotas, shop = make_quotas(subject_requests_per_minute=3, tenant_requests_per_minute=7), unique("shop")
    passed = [await taken(quotas, shop, subject, tries=5) for subject in ("a", "b", "c", "", "")]
    assert passed == [3, 3, 1, 0, 0]


async def test_zero_is_no_limit_and_who_has_no_name_is_not_counted_by_it(
    make_quotas: MakeQuotas, redis_server: Any
) -> None:
    redis_server.stop()
    quotas = make_quotas(subject_requests_per_minute=1, tenant_requests_per_minute=0)
    assert await taken(quotas, "shop", "", tries=50) == 50
    assert quotas._calls.problem == "no answer yet", "Redis is not even asked"


@pytest.mark.parametrize("outage", ["stop", "pause"])
async def test_while_redis_is_away_each_gateway_counts_by_itself(
    make_quotas: MakeQuotas, redis_server: Any, unique: Callable[[str], str], outage: str
) -> None:
    """One request waits for it, once; none fails by it."""
    quotas, shop = make_quotas(subject_requests_per_minute=4), unique("shop")
    getattr(redis_server, outage)()
    began = time.monotonic()
    assert await taken(quotas, shop, "alice", tries=40) == 4
    assert time.monotonic() - began < 40 * 0.2 / 2, "not a timeout each"
