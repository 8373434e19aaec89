"""A call that an answer depends on waits for a Redis that is slow. A Redis that is away delays one caller at a time."""

import asyncio

import pytest

from shared.errors import StoreUnavailable
from shared.process.clock import CLOCKS
from shared.redis.calls import RedisCalls
from shared.settings.redis import RedisSettings
from tests.support.fakes.instant_loop import at_once

PATIENT_S = 0.75


@pytest.fixture(autouse=True)
def _loops_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CLOCKS.get(), "monotonic_s", lambda: asyncio.get_running_loop().time())


async def slow() -> str:
    await asyncio.sleep(0.08)
    return "here"


async def silent() -> str:
    await asyncio.sleep(3_600)
    raise AssertionError


async def waited_s(calls: RedisCalls) -> float:
    """Return how long a patient call to a silent Redis took to fail."""
    begun_s = asyncio.get_running_loop().time()
    with pytest.raises(StoreUnavailable):
        await calls.patient(silent, PATIENT_S)
    return asyncio.get_running_loop().time() - begun_s


@pytest.mark.parametrize("later_s", [0.0, 0.95, 5.0])
@at_once
async def test_a_redis_that_is_too_slow_for_other_calls_is_not_taken_for_away(later_s: float) -> None:
    """Each answer's end writes a turn, and the next question comes more than a second later."""
    calls = RedisCalls(RedisSettings(), logs_outages=False)
    for _ in range(3):
        with pytest.raises(StoreUnavailable):
            await calls.bounded(slow())
        await asyncio.sleep(later_s)
        assert await calls.patient(slow, PATIENT_S) == "here"


@at_once
async def test_a_silent_redis_delays_one_caller_at_a_time() -> None:
    calls = RedisCalls(RedisSettings(), logs_outages=False)
    await waited_s(calls)
    await asyncio.sleep(5)
    waits = sorted(await asyncio.gather(*(waited_s(calls) for _ in range(20))))
    assert waits[-2] <= RedisSettings().timeout_ms / 1_000
    assert waits[-1] == pytest.approx(PATIENT_S)
    assert await waited_s(calls) == 0, "not soon after"
