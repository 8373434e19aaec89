"""Quota units per minute, counted by all gateways together, and by each alone while Redis is away, without waiting."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
import pytest_asyncio
from redis import Redis

from gateway.access.charges import Caller, Kind, Tariff
from gateway.access.quotas import Quotas
from shared.errors import ProtocolError, StoreUnavailable
from shared.settings.gateway import HandoffSettings, QuotaSettings
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey

MakeQuotas = Callable[..., Quotas]
PER_MINUTE = 34  # three more than an erasure, a hand-off and a question cost


@pytest_asyncio.fixture
async def make_quotas(redis_server: Any) -> AsyncIterator[MakeQuotas]:
    made: list[Quotas] = []

    def make(*, handoffs_per_minute: int = 30, timeout_ms: int = 10_000, **limits: Any) -> Quotas:
        redis = RedisSettings(url=redis_server.url, timeout_ms=timeout_ms)
        tariff = Tariff(QuotaSettings(**limits), HandoffSettings(per_minute=handoffs_per_minute))
        made.append(Quotas(tariff, redis))
        return made[-1]

    yield make
    for quotas in made:
        await quotas.close()


async def taken(quotas: Quotas, tenant: str, subject: str, *, tries: int, kind: Kind = "ask") -> int:
    """Check that this many of the tries passed and the others got a time to retry."""
    caller = Caller(SessionKey(tenant, "s"), subject)
    return await passed([await refusal(quotas.charge(kind, caller)) for _ in range(tries)])


async def passed(refusals: list[ProtocolError | None]) -> int:
    for error in refusals:
        if error is not None:
            assert (error.code, error.kind, error.retriable) == ("rate_limited", "rate_limit_error", True)
            assert error.retry_after_ms is not None
            assert 0 < error.retry_after_ms <= 60_001
    return sum(error is None for error in refusals)


async def refusal(taking: Any) -> ProtocolError | None:
    try:
        await taking
    except ProtocolError as error:
        return error
    return None


async def test_a_subject_shares_its_units_between_all_gateways(
    make_quotas: MakeQuotas, unique: Callable[[str], str]
) -> None:
    one, other = (make_quotas(subject_per_minute=5) for _ in range(2))
    shop = unique("shop")
    assert await taken(one, shop, "alice", tries=3) + await taken(other, shop, "alice", tries=9) == 5
    assert await taken(one, shop, "bob", tries=9) == 5
    assert await taken(one, unique("shop"), "alice", tries=9) == 5


async def test_a_tenant_shares_its_units_between_all_its_customers(
    make_quotas: MakeQuotas, unique: Callable[[str], str]
) -> None:
    """A customer stopped by the tenant's limit uses no units of the customer's."""
    quotas, shop = make_quotas(subject_per_minute=3, tenant_per_minute=7), unique("shop")
    had = [await taken(quotas, shop, subject, tries=5) for subject in ("a", "b", "c", "", "")]
    assert had == [3, 3, 1, 0, 0]
    quotas = make_quotas(subject_per_minute=3)
    assert await taken(quotas, shop, "c", tries=5) == 2


@pytest.mark.parametrize("away", [False, True], ids=["counted in Redis", "counted alone"])
async def test_each_kind_of_request_has_its_cost(
    make_quotas: MakeQuotas, redis_server: Any, unique: Callable[[str], str], away: bool
) -> None:
    if away:
        redis_server.stop()
    quotas, shop, begun_s = make_quotas(subject_per_minute=PER_MINUTE), unique("shop"), time.monotonic()
    kinds: tuple[Kind, ...] = ("delete", "handoff", "ask", "delete")
    assert [await taken(quotas, shop, "alice", tries=1, kind=kind) for kind in kinds] == [1, 1, 1, 0]
    left = await taken(quotas, shop, "alice", tries=20)
    assert 3 <= left <= 3 + PER_MINUTE * (time.monotonic() - begun_s) / 60


async def test_a_tenants_customers_share_a_limit_of_hand_offs_at_all_gateways(
    make_quotas: MakeQuotas, unique: Callable[[str], str]
) -> None:
    """Hand-offs during an outage and those of another tenant are counted separately."""
    one, other = (make_quotas(handoffs_per_minute=3) for _ in range(2))
    asker = Caller(SessionKey(unique("shop"), "s"))
    tries = [*([one] * 2), *([other] * 5)]
    assert await passed([await refusal(each.charge_handoff("requested", asker)) for each in tries]) == 3
    assert await refusal(one.charge_handoff("text", asker)) is not None
    assert await refusal(one.charge_handoff("fallbacks", asker)) is None
    assert await refusal(one.charge_handoff("requested", Caller(SessionKey(unique("shop"), "s")))) is None


async def test_quota_keys_contain_no_name_and_expire_with_their_minute(
    make_quotas: MakeQuotas, redis_server: Any, unique: Callable[[str], str]
) -> None:
    quotas, shop = make_quotas(subject_per_minute=60, tenant_per_minute=600), unique("shop")
    with Redis.from_url(redis_server.url) as admin:
        before = set(admin.keys("replyline:quota:*"))
        assert await taken(quotas, shop, "alice", tries=30) == 30
        fresh = set(admin.keys("replyline:quota:*")) - before
        assert len(fresh) == 2
        for key in fresh:
            assert b"alice" not in key
            assert shop.encode() not in key
            assert 0 < admin.pttl(key) <= 30_001, "a full bucket is deleted"


async def test_zero_means_no_limit_and_a_client_without_a_name_is_not_counted(
    make_quotas: MakeQuotas, redis_server: Any
) -> None:
    redis_server.stop()
    quotas = make_quotas(subject_per_minute=1, tenant_per_minute=0)
    assert await taken(quotas, "shop", "", tries=50) == 50
    assert quotas._calls.problem == "no answer yet", "Redis is not called"


async def test_an_address_is_counted_without_redis(make_quotas: MakeQuotas, redis_server: Any) -> None:
    redis_server.stop()
    quotas = make_quotas(address_per_minute=5)
    callers = [Caller(SessionKey("shop", f"s{number}"), address="192.0.2.7") for number in range(9)]
    assert await passed([await refusal(quotas.charge("ask", caller)) for caller in callers]) == 5
    assert await refusal(quotas.charge("ask", Caller(SessionKey("shop", "s"), address="192.0.2.8"))) is None
    assert quotas._calls.problem == "no answer yet"


@pytest.mark.parametrize("outage", ["stop", "pause"])
async def test_while_redis_is_away_each_gateway_counts_alone(
    make_quotas: MakeQuotas,
    redis_server: Any,
    unique: Callable[[str], str],
    monkeypatch: pytest.MonkeyPatch,
    outage: str,
) -> None:
    """One message waits for the timeout, once; none fails."""
    monkeypatch.setattr("shared.redis.calls.RETRY_AFTER_S", 60.0)
    quotas, shop = make_quotas(subject_per_minute=4, timeout_ms=200), unique("shop")
    getattr(redis_server, outage)()
    bounded, causes = quotas._calls.bounded, list[str]()

    async def counted(call: Awaitable[Any]) -> Any:
        try:
            return await bounded(call)
        except StoreUnavailable as error:
            causes.append(str(error))
            raise

    monkeypatch.setattr(quotas._calls, "bounded", counted)
    assert await taken(quotas, shop, "alice", tries=40) == 4
    assert ["not called for a moment" in cause for cause in causes] == [False, *[True] * 39], "not a timeout each"


async def test_units_refill_by_redis_own_time(
    make_quotas: MakeQuotas, redis_server: Any, unique: Callable[[str], str]
) -> None:
    """To the microsecond, also across the turn of a second."""
    quotas, caller = make_quotas(tenant_per_minute=20), Caller(SessionKey(unique("shop"), "s"))
    assert await passed([await refusal(quotas.charge("delete", caller)) for _ in range(2)]) == 2
    with Redis.from_url(redis_server.url) as admin:

        async def waiting_ms() -> tuple[int, float, float]:
            """Return the wait between these two moments."""
            moments = [admin.time()]
            error = await refusal(quotas.charge("delete", caller))
            assert error is not None
            assert error.retry_after_ms is not None
            moments.append(admin.time())
            before, after = (seconds * 1_000 + micros / 1_000 for seconds, micros in moments)
            return error.retry_after_ms, before, after

        first, after, until = await waiting_ms()
        for _ in range(4):
            await asyncio.sleep(0.3)
            then, before, at = await waiting_ms()
            assert before - until - 2 <= first - then <= at - after + 2


async def test_shares_of_less_than_a_millisecond_count_too(make_quotas: MakeQuotas) -> None:
    """Redis accepts no key with a lifetime of 0."""
    quotas = make_quotas(tenant_per_minute=100_000)
    assert await taken(quotas, "busy", "alice", tries=3) == 3
    assert len(quotas._local) == 0, "they were counted in Redis"
