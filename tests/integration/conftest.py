"""What the suites here share: Redis stores, and a watch over the machine."""

import asyncio
from collections.abc import AsyncIterator

import pytest_asyncio
from kv_stores import bench, make_bench, own_redis
from standstill import InTime, Standstill

__all__ = ["bench", "in_time", "make_bench", "own_redis", "standstill"]


@pytest_asyncio.fixture
async def standstill() -> AsyncIterator[Standstill]:
    """It ticks for as long as the test runs."""
    watch = Standstill()
    ticking = asyncio.create_task(watch.run())
    yield watch
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)


@pytest_asyncio.fixture
async def in_time(standstill: Standstill) -> InTime:
    """`in_time(answer, deadline_ms)`."""
    return standstill.in_time
