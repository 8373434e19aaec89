"""A topic that every process reads, given more partitions than one: nothing that is written to it is lost."""

import asyncio
from typing import Final

import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Client

PARTITIONS: Final = 8
TIMES: Final = 6


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    """Whose topics are each test's own."""
    return await new_system(worker__slots=TIMES, worker__fake_decode_ms_per_step=20, promise__deadline_ms=30_000)


async def given_more_partitions(system: System, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({system.topic(topic): NewPartitions(PARTITIONS)})
    finally:
        await admin.close()


async def test_erasures_reach_those_that_began_before_the_partitions(system: System) -> None:
    """The second gateway comes later, and knows all of them; the first has the partitions of its start."""
    before, _ = await asyncio.gather(system.gateway(gateway__reply_partition=0).ready(), system.worker().ready())
    await given_more_partitions(system, "chat.erasures")
    later = await system.gateway(gateway__reply_partition=1).ready()
    async with Client.connect(before.ws) as client, Client.connect(later.ws, session_id=client.session_id) as eraser:
        for _ in range(TIMES):
            running = await client.create("How do I return an item?", max_output_tokens=1_000)
            await client.text_of(running, chars=5)
            await eraser.send({"type": "session.delete"})
            assert (await client.answer(running)).outcome[0] == "cancelled"
    async with system.reading("chat.erasures") as tap:
        records = await tap.to_the_end()
    assert {record.partition for record in records} == {0}
    assert len(records) == TIMES


async def test_a_workers_reports_reach_a_gateway_that_began_before_the_partitions(system: System) -> None:
    gateway = await system.gateway().ready()
    await given_more_partitions(system, "chat.workers")
    await system.worker().ready()
    await knows_one_worker(gateway)


async def knows_one_worker(gateway: Service) -> None:
    async def is_known() -> bool:
        return await gateway.metric("replyline_gateway_workers") == 1

    await eventually(is_known)
