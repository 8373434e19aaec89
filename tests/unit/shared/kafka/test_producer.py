"""Every caller that waits for a delivery gets its result, even if the producer that was to deliver it is replaced."""

import asyncio
import gc
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import RequestTimedOutError

from shared.kafka import Producer
from shared.settings.kafka import KafkaSettings

NOWHERE = "127.0.0.1:1"


@pytest_asyncio.fixture
async def complaints() -> AsyncIterator[list[dict[str, Any]]]:
    """Collect the messages that asyncio would log."""
    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    yield told
    gc.collect()
    assert told == []


async def stuck(producer: AIOKafkaProducer) -> "list[asyncio.Future[object]]":
    """Return two deliveries that the sender cannot complete: one tried, one not yet tried."""

    async def sender() -> None:
        """aiokafka's sender swallows its cancellation as well."""
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    producer._txn_manager.set_pid_and_epoch(1, 0)
    accumulator = producer._message_accumulator
    tried = await accumulator.add_message(TopicPartition("t", 0), None, b"x", 1)
    accumulator.reenqueue(accumulator._pop_batch(TopicPartition("t", 0)))
    fresh = await accumulator.add_message(TopicPartition("t", 1), None, b"x", 1)
    producer._sender._sender_task = asyncio.create_task(sender())
    return [tried, fresh]


def idempotent() -> AIOKafkaProducer:
    return AIOKafkaProducer(bootstrap_servers=NOWHERE, enable_idempotence=True)


@pytest.fixture
def producer() -> Producer:
    return Producer(KafkaSettings(bootstrap_servers=NOWHERE, request_timeout_ms=100), client_id="test")


async def check_failed(deliveries: "list[asyncio.Future[object]]") -> None:
    async with asyncio.timeout(1):
        outcomes = await asyncio.gather(*deliveries, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [RequestTimedOutError, RequestTimedOutError]


async def test_undelivered_records_of_a_replaced_producer_fail(
    producer: Producer, complaints: list[dict[str, Any]]
) -> None:
    broken = idempotent()
    deliveries = await stuck(broken)
    await producer._close(broken)
    await check_failed(deliveries)


async def test_a_cancelled_renewal_still_closes_the_old_producer(
    producer: Producer, complaints: list[dict[str, Any]]
) -> None:
    broken = idempotent()
    deliveries = await stuck(broken)
    producer._producer = idempotent()
    producer._closing.start(producer._close(broken))
    await asyncio.sleep(0)
    await producer.stop()
    await check_failed(deliveries)
