"""After a failure Redis is left alone for a while, whatever the wall clock says meanwhile."""

import asyncio
import socket
import time
from types import SimpleNamespace

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import OutOfMemoryError
from structlog.testing import capture_logs

from shared.errors import StoreUnavailable
from shared.process.clock import CLOCKS
from shared.redis.calls import RedisCalls
from shared.settings.redis import RedisSettings


async def answer() -> str:
    return "here"


async def failure() -> str:
    raise RedisConnectionError("away")


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """`wall_s` and `steady_s` are what the clocks say."""
    times = SimpleNamespace(wall_s=1e9, steady_s=1_000.0)
    monkeypatch.setattr(CLOCKS.get(), "wall_s", lambda: times.wall_s)
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", lambda: times.steady_s)
    return times


@pytest.fixture
def calls() -> RedisCalls:
    return RedisCalls(RedisSettings(), tells=False)


async def test_it_is_left_alone_for_as_long_as_set(calls: RedisCalls, times: SimpleNamespace) -> None:
    with pytest.raises(StoreUnavailable):
        await calls.bounded(failure())
    with pytest.raises(StoreUnavailable, match="not called for a moment"):
        await calls.bounded(answer())
    times.wall_s, times.steady_s = times.wall_s + 1, times.steady_s + 1
    assert await calls.bounded(answer()) == "here"


async def test_who_must_know_asks_all_the_same(calls: RedisCalls, times: SimpleNamespace) -> None:
    with pytest.raises(StoreUnavailable):
        await calls.bounded(failure())
    assert await calls.bounded(answer(), at_once=True) == "here"
    assert await calls.bounded(answer()) == "here"


async def test_a_wall_clock_that_is_put_back_does_not_keep_it_alone_for_longer(
    calls: RedisCalls, times: SimpleNamespace
) -> None:
    with pytest.raises(StoreUnavailable):
        await calls.bounded(failure())
    times.wall_s, times.steady_s = times.wall_s - 3_600, times.steady_s + 1
    assert await calls.bounded(answer()) == "here"


async def full() -> str:
    raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")


async def test_one_that_is_full_is_read_all_the_same_and_told_now_and_then(times: SimpleNamespace) -> None:
    """It takes no writes until something has expired."""
    calls = RedisCalls(RedisSettings(), tells=True)
    with capture_logs() as lines:
        for later_s in (0, 1, 58, 2):
            times.steady_s += later_s
            with pytest.raises(StoreUnavailable):
                await calls.bounded(full())
            assert await calls.bounded(answer()) == "here"
    assert [line["event"] for line in lines] == ["redis_full"] * 2


async def test_what_redis_said_while_this_process_stood_still_is_heard() -> None:
    """The answer and the end of the waiting come in one turn of the loop."""
    calls = RedisCalls(RedisSettings(timeout_ms=10), tells=False)
    ours, redis = socket.socketpair()
    ours.setblocking(False)
    loop = asyncio.get_running_loop()

    def stand_still() -> None:
        redis.send(b"here")
        time.sleep(0.03)

    async def answered() -> bytes:
        loop.call_soon(stand_still)
        return await loop.sock_recv(ours, 4)

    with ours, redis:
        for _ in range(5):
            assert await calls.bounded(answered()) == b"here"


async def test_one_that_says_nothing_is_given_up_in_time() -> None:
    calls = RedisCalls(RedisSettings(timeout_ms=10), tells=False)
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        await calls.bounded(never)
    assert never.cancelled()
    with pytest.raises(StoreUnavailable, match="not called for a moment"):
        await calls.bounded(answer())
