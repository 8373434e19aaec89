"""A cancel reaches the worker that has its request, even after a rebalance, and no other worker acts on it."""

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any, Final

import msgpack
import pytest_asyncio
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from shared.kafka.producer import partition_of
from shared.wire.codec import decode_report
from shared.wire.reports import WorkerReport
from shared.wire.session_key import SessionKey
from shared.wire.topics import BUCKETS
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import Client

PARTITIONS: Final = 3
SESSIONS: Final = 8
REMEMBERED: Final = "replyline_worker_cancels_remembered"


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    """A system whose workers each test starts."""
    return await new_system(
        worker__slots=SESSIONS,
        worker__fake_decode_ms_per_step=20,
        promise__deadline_ms=30_000,
        limits__max_input_tokens=900,
    )


async def share_out(system: System, *workers: Service) -> None:
    """Wait until the reports show every partition assigned and each worker with some."""
    newest: dict[str, WorkerReport] = {}

    async with system.reading("chat.workers") as tap:

        async def is_done() -> bool:
            for record in await tap.to_the_end():
                report = decode_report(record.value)
                newest[report.worker_id] = report
            held = [(b, number) for each in newest.values() for b, ns in each.partitions.items() for number in ns]
            having = [name for name, each in newest.items() if any(each.partitions.values())]
            return len(having) == len(workers) and sorted(held) == sorted(
                (b, n) for b in BUCKETS for n in range(PARTITIONS)
            )

        await eventually(is_done)


def in_partition(wanted: int, unique: Callable[[str], str]) -> str:
    """Return a session whose requests go to that partition."""
    names = (unique(f"session{number}") for number in count())
    return next(name for name in names if partition_of(SessionKey("demo", name).record_key, PARTITIONS) == wanted)


async def test_a_cancel_is_read_only_by_the_worker_that_has_the_request(
    system: System, unique: Callable[[str], str]
) -> None:
    workers = [system.worker() for _ in range(2)]
    gateway, *_ = await asyncio.gather(system.gateway().ready(), *(worker.ready() for worker in workers))
    await share_out(system, *workers)
    for number in range(SESSIONS):
        async with Client.connect(gateway.ws, session_id=in_partition(number % PARTITIONS, unique)) as client:
            running = await client.create("How do I return an item?", max_output_tokens=1_000)
            await client.text_of(running, chars=5)
            await client.send({"type": "response.cancel", "target_event_id": running})
            assert (await client.answer(running)).outcome[0] == "cancelled"
    ended = [lambda worker=worker: worker.logged("answered", status="cancelled") for worker in workers]
    await eventually(lambda: sum(len(each()) for each in ended) == SESSIONS)
    assert all(each() for each in ended), "both workers read some"
    await asyncio.sleep(1)  # a worker that reads foreign cancels has read it by this time
    assert [await worker.metric(REMEMBERED) for worker in workers] == [0, 0]


async def test_a_worker_that_is_assigned_a_partition_reads_its_earlier_cancels(
    system: System, unique: Callable[[str], str]
) -> None:
    """The cancel came while another worker or none had the partition; the request is read after it."""
    name = unique("cancelled")
    key = f"demo/{name}".encode()
    request: dict[str, Any] = {
        "type": "chat.request",
        "id": name,
        "session_id": name,
        "input": "Hello",
        "tenant": "demo",
    }
    await system.produce("chat.cancels", msgpack.packb({"type": "chat.cancel", "request_id": name}), key=key)
    worker = await system.worker().ready()

    async def knows() -> bool:
        return await worker.metric(REMEMBERED) == 1

    await eventually(knows)
    await system.produce("chat.requests.short", msgpack.packb(request), key=key)
    async with system.reading("chat.replies.external") as tap:
        done = await tap.until(lambda record: msgpack.unpackb(record.value)["type"] == "chat.done")
    assert msgpack.unpackb(done.value)["status"] == "cancelled"
    await eventually(lambda: worker.logged("answered", status="cancelled"))


async def test_topics_whose_layout_would_misroute_cancels_are_refused_in_one_line(system: System) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({system.topic("chat.cancels"): NewPartitions(6)})
        worker, gateway = system.worker(), system.gateway()
        for service in (worker, gateway):
            (line,) = await eventually(lambda service=service: service.logged("unavailable", what="kafka topics"))
            assert "chat.cancels has 6 partitions, and" in line["cause"]
            assert line["cause"].endswith("replyline topics create")
        assert await worker.status_of("/ready") == 503
        requests = {system.topic(f"chat.requests.{bucket}"): NewPartitions(6) for bucket in BUCKETS}
        await admin.create_partitions(requests)
        await asyncio.gather(worker.ready(), gateway.ready())
    finally:
        await admin.close()
