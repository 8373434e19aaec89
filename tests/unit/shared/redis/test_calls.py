"""After a failure Redis is left alone for a while, whatever the wall clock says meanwhile."""

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
    with pytest.raises(StoreUnavailable, match="left alone"):
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
