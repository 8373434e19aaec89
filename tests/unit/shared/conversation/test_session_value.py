"""A value that a slow Redis returns late does not count as missing: a hand-off would be opened twice."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError

from gateway.people.handoffs import Handoffs
from shared.conversation.handoff_store import HandoffStore
from shared.conversation.session_value import SessionValue
from shared.errors import StoreUnavailable
from shared.process.clock import CLOCKS
from shared.settings.redis import RedisSettings
from shared.wire.session_key import SessionKey
from tests.support.fakes.instant_loop import at_once
from tests.unit.gateway.people.test_handoffs import Broker, made, opened

SESSION: Final = SessionKey("t", "s")
CALLS: Final[dict[str, Callable[[SessionValue], Awaitable[object]]]] = {
    "find": lambda values: values.find(SESSION),
    "generation": lambda values: values.generation(SESSION),
    "put": lambda values: values.put(SESSION, b"v", generation=0, kept_s=60),
    "replace": lambda values: values.replace(SESSION, b"v", None, generation=0, kept_s=60),
    "withdraw": lambda values: values.withdraw(SESSION, 1.0, asked=True),
    "remove": lambda values: values.remove(SESSION, b"v"),
}


@pytest.fixture(autouse=True)
def _loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", lambda: asyncio.get_running_loop().time())


@dataclass
class Redis:
    """Each call takes `delay_s`, and is refused until `refuses_until_s`."""

    delay_s: float = 0.0
    refuses_until_s: float = 0.0
    kept: dict[str, bytes] = field(default_factory=dict)

    def values(self) -> SessionValue:
        return self.behind(SessionValue(RedisSettings(), "handoff"))

    def behind(self, values: SessionValue) -> SessionValue:
        values._redis = self  # type: ignore[assignment]
        for name in ("_put", "_replace", "_withdraw", "_remove"):
            setattr(values, name, self.put)
        return values

    async def call(self, work: Callable[["Redis"], Any]) -> Any:
        await self._wait()
        return work(self)

    async def put(self, keys: tuple[str, ...], values: tuple[Any, ...]) -> int:
        await self._wait()
        self.kept[keys[0]] = values[0]
        return 1

    def get(self, key: str) -> bytes | None:
        return self.kept.get(key)

    async def _wait(self) -> None:
        if asyncio.get_running_loop().time() < self.refuses_until_s:
            raise RedisConnectionError("away")
        await asyncio.sleep(self.delay_s)


def gateway_with(redis: Redis, broker: Broker) -> Handoffs:
    handoffs = made(broker, None)  # type: ignore[arg-type]
    handoffs.store = HandoffStore(RedisSettings())
    redis.behind(handoffs.store._values)
    return handoffs


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("redis", [Redis(delay_s=0.08), Redis(delay_s=0.9), Redis(refuses_until_s=0.3)], ids=repr)
@at_once
async def test_each_call_waits_for_a_slow_redis(redis: Redis, call: str) -> None:
    await CALLS[call](redis.values())


@pytest.mark.parametrize("call", CALLS)
@at_once
async def test_a_redis_that_is_away_is_waited_for_once(call: str) -> None:
    values, loop = Redis(refuses_until_s=3_600).values(), asyncio.get_running_loop()
    for most_s in (1.0, 0.1, 0):
        begun_s = loop.time()
        with pytest.raises(StoreUnavailable):
            await CALLS[call](values)
        assert loop.time() - begun_s <= most_s


@pytest.mark.parametrize("delay_s", [0.0, 0.08, 0.9])
@at_once
async def test_two_gateways_with_a_slow_redis_open_one_hand_off(delay_s: float) -> None:
    redis, broker = Redis(delay_s=delay_s), Broker()
    first, second = gateway_with(redis, broker), gateway_with(redis, broker)
    created = await opened(first)
    await asyncio.sleep(60)
    again = await opened(second)
    assert (again.handoff, again.was_open, len(broker.records)) == (created.handoff, True, 1)
