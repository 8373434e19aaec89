"""After a failure Redis is not called for a while, even if the wall clock changes."""

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
    """`wall_s` and `steady_s` are the two clocks' readings."""
    times = SimpleNamespace(wall_s=1e9, steady_s=1_000.0)
    monkeypatch.setattr(CLOCKS.get(), "wall_s", lambda: times.wall_s)
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", lambda: times.steady_s)
    return times


@pytest.fixture
def calls() -> RedisCalls:
    return RedisCalls(RedisSettings(), logs_outages=False)


async def test_redis_is_not_called_for_the_configured_pause(calls: RedisCalls, times: SimpleNamespace) -> None:
    with pytest.raises(StoreUnavailable):
        await calls.bounded(failure())
    with pytest.raises(StoreUnavailable, match="not called for a moment"):
        await calls.bounded(answer())
    times.wall_s, times.steady_s = times.wall_s + 1, times.steady_s + 1
    assert await calls.bounded(answer()) == "here"


async def test_a_call_that_must_know_ignores_the_pause(calls: RedisCalls, times: SimpleNamespace) -> None:
    with pytest.raises(StoreUnavailable):
        await calls.bounded(failure())
    assert await calls.bounded(answer(), at_once=True) == "here"
    assert await calls.bounded(answer()) == "here"


async def test_setting_the_wall_clock_back_does_not_lengthen_the_pause(
    calls: RedisCalls, times: SimpleNamespace
) -> None:
    with pytest.raises(StoreUnavailable):
        await calls.bounded(failure())
    times.wall_s, times.steady_s = times.wall_s - 3_600, times.steady_s + 1
    assert await calls.bounded(answer()) == "here"


async def full() -> str:
    raise OutOfMemoryError("command not allowed when used memory > 'maxmemory'.")


async def test_a_full_redis_is_still_read_and_reported_now_and_then(times: SimpleNamespace) -> None:
    """It accepts no writes until something has expired."""
    calls = RedisCalls(RedisSettings(), logs_outages=True)
    with capture_logs() as lines:
        for later_s in (0, 1, 58, 2):
            times.steady_s += later_s
            with pytest.raises(StoreUnavailable):
                await calls.bounded(full())
            assert await calls.bounded(answer()) == "here"
    assert [line["event"] for line in lines] == ["redis_full"] * 2


async def test_an_answer_that_arrived_while_the_process_was_frozen_counts() -> None:
    """The answer and the timeout arrive in the same turn of the loop."""
    calls = RedisCalls(RedisSettings(timeout_ms=10), logs_outages=False)
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


async def test_a_silent_redis_times_out() -> None:
    calls = RedisCalls(RedisSettings(timeout_ms=10), logs_outages=False)
    never = asyncio.get_running_loop().create_future()
    with pytest.raises(StoreUnavailable, match="TimeoutError"):
        await calls.bounded(never)
    assert never.cancelled()
    with pytest.raises(StoreUnavailable, match="not called for a moment"):
        await calls.bounded(answer())


async def test_a_call_that_loses_a_cancel_is_cancelled_again() -> None:
    """redis-py loses one that comes as its connection is made; a silent Redis then kept the caller for 5 s."""
    cancels = 0

    async def call() -> None:
        nonlocal cancels
        while cancels < 2:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                cancels += 1
        raise asyncio.CancelledError

    with pytest.raises(StoreUnavailable):
        await RedisCalls(RedisSettings(timeout_ms=1), logs_outages=False).bounded(call())
    assert cancels == 2


@pytest.mark.parametrize("loses", [0, 1])
async def test_a_caller_that_is_cancelled_ends_so_even_if_redis_py_loses_the_cancel(loses: int) -> None:
    lost = 0

    async def call() -> None:
        nonlocal lost
        while lost <= loses:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                lost += 1
        raise asyncio.CancelledError

    caller = asyncio.create_task(RedisCalls(RedisSettings(timeout_ms=50), logs_outages=False).bounded(call()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert lost == loses + 1


async def test_a_caller_whose_cancel_became_a_value_is_cancelled() -> None:
    async def call() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return "late"
        raise AssertionError

    caller = asyncio.create_task(RedisCalls(RedisSettings(), logs_outages=False).bounded(call()))
    await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller


async def test_a_timed_out_call_leaves_its_caller_uncancelled() -> None:
    calls = RedisCalls(RedisSettings(timeout_ms=1), logs_outages=False)
    async with asyncio.timeout(10):
        with pytest.raises(StoreUnavailable):
            await calls.bounded(asyncio.Event().wait())
        await asyncio.sleep(0.01)
    task = asyncio.current_task()
    assert task is not None
    assert not task.cancelling()


async def test_a_callers_own_limit_is_not_taken_for_redis() -> None:
    calls = RedisCalls(RedisSettings(timeout_ms=5_000), logs_outages=False)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.001):
            await calls.bounded(asyncio.Event().wait())
    assert await calls.bounded(answer()) == "here"
