"""A backlog does not delay requests that can still be answered."""

import asyncio
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
from aiokafka import AIOKafkaProducer

from tests.support.system import Service, System, eventually
from tests.support.wire import Client

pytestmark = [
    pytest.mark.long,
    pytest.mark.system(
        workers=0,
        gateways=0,
        worker__fake_decode_ms_per_step=10,
        worker__slots=1,
        worker__max_waiting=8,
        promise__first_token_ms=60_000,
        promise__deadline_ms=60_000,
    ),
]

PARTITIONS = 3


def request(name: str, **fields: Any) -> bytes:
    given = {"type": "chat.request", "id": name, "session_id": "s", "input": "Hello?", "max_output_tokens": 3, **fields}
    packed: bytes = msgpack.packb(given)
    return packed


async def produce_all(system: System, topic: str, records: list[tuple[bytes, dict[str, bytes]]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=system.bootstrap, acks="all") as producer:
        sent = [
            await producer.send(
                system.topic(topic), value, partition=number % PARTITIONS, headers=list(headers.items())
            )
            for number, (value, headers) in enumerate(records)
        ]
        await asyncio.gather(*sent)


async def test_a_flood_in_one_bucket_does_not_delay_another_buckets_requests(
    system: System, unique: Callable[[str], str]
) -> None:
    """A hundred questions of three quarters of a second wait in one topic; one in another is read past them all and
    answered by the model within its eight seconds, and none of the flood is lost when the worker ends.
    """
    worker: Service = await system.worker().ready()
    flood = [unique("flood") for _ in range(100)]
    await produce_all(system, "chat.requests.short", [(request(name, max_output_tokens=75), {}) for name in flood])

    async def is_full() -> bool:
        return await worker.metric("replyline_worker_intake_paused") == 1

    await eventually(is_full)
    gateway = await system.gateway().ready()
    async with Client.connect(gateway.ws) as client:
        answer = await client.ask("x" * 300, first_token_ms=7_900, deadline_ms=8_000, max_output_tokens=3)
    assert answer.created["bucket"] == "long"
    assert answer.outcome[2] == "model"
    assert await worker.metric("replyline_worker_load", what="waiting") <= 8
    before = sum((await system.committed()).values())
    assert await worker.stop() == 0
    after = sum((await system.committed()).values())
    assert before <= after < before + len(flood), "records that were only read are left to another worker"
