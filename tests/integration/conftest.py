"""Shared fixtures: Redis stores, a broker that may be stopped, and a monitor of the machine's pauses."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import pytest
import pytest_asyncio

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.processes import ServiceError
from tests.integration.support.kv_stores import bench, make_bench, own_redis
from tests.support.reliability import Reliability
from tests.support.standstill import BESIDE_OTHERS_S, GRACE_S, InTime, Standstill

__all__ = ["bench", "in_time", "make_bench", "own_redis", "standstill"]


@pytest_asyncio.fixture
async def standstill(reliability: Reliability) -> AsyncIterator[Standstill]:
    """A monitor that ticks for as long as the test runs."""
    watch = Standstill(GRACE_S if reliability.whole else BESIDE_OTHERS_S)
    ticking = asyncio.create_task(watch.run())
    yield watch
    ticking.cancel()
    await asyncio.gather(ticking, return_exceptions=True)


@pytest_asyncio.fixture
async def in_time(standstill: Standstill) -> InTime:
    """`in_time(answer, deadline_ms)`."""
    return standstill.in_time


@pytest.fixture(scope="module")
def _own_broker() -> Iterator[KafkaBroker]:
    try:
        with KafkaBroker() as broker:
            yield broker
    except ServiceError as error:
        pytest.fail(f"{error}", pytrace=False)


@pytest.fixture
def own_broker(_own_broker: KafkaBroker) -> KafkaBroker:
    """A broker that the test may stop; it runs when the test begins."""
    if not _own_broker.running:
        _own_broker.start()
    return _own_broker
