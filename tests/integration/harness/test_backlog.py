"""A backlog does not hold up what can still be answered."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import msgpack
import pytest
import pytest_asyncio
from aiokafka import AIOKafkaProducer

from shared.wire.topics import BUCKETS
from tests.support.system import MakeSystem, Service, System, Tap, eventually
from tests.support.wire import Client

pytestmark = pytest.mark.long

PARTITIONS = 3


@pytest_asyncio.fixture(scope="module")
async def system(make_system: MakeSystem) -> System:
    return await make_system(
        worker__fake_decode_ms_per_step=10,
        worker__slots=1,
        worker__max_waiting=8,
        promise__first_token_ms=60_000,
        promise__deadline_ms=60_000,
    )


def request(name: str, **fields: Any) -> bytes:
    given = {"type": "chat.request", "id": name, "session_id": "s", "input": "Hello?", "max_output_tokens": 3, **fields}
    packed: bytes = msgpack.packb(given)
    return packed


def deadline_ms(after_now_s: float) -> int:
    return int((time.time() + after_now_s) * 1_000)


async def produce_all(system: System, topic: str, records: list[tuple[bytes, dict[str, bytes]]]) -> None:
    async with AIOKafkaProducer(bootstrap_servers=system.bootstrap, acks="all") as producer:
        sent = [
            await producer.send(
                system.topic(topic), value, partition=number % PARTITIONS, headers=list(headers.items())
            )
            for number, (value, headers) in enumerate(records)
        ]
        await asyncio.gather(*sent)


async def answered(tap: Tap, names: set[str]) -> dict[str, dict[str, Any]]:
    """The terminal event of each of these."""
    found: dict[str, dict[str, Any]] = {}

    def is_last(record: Any) -> bool:
        event = msgpack.unpackb(record.value)
        if event["type"] == "chat.done" and event["request_id"] in names:
            assert event["request_id"] not in found, "answered twice"
            found[event["request_id"]] = event
        return found.keys() == names

    await tap.until(is_last)
    return found


async def test_a_backlog_of_late_records_is_passed_over_and_the_rest_is_served(
    system: System, unique: Callable[[str], str]
) -> None:
    """Gateways have answered theirs: no record is written for them; others get one each; all is committed."""
    late, others, live = 1_000, {unique("other") for _ in range(50)}, {unique("live") for _ in range(5)}
    past = str(deadline_ms(-3_600)).encode()
    of_gateway = {"ce_id": b"gone", "deadline-unix-ms": past, "reply-topic": system.topic("chat.replies").encode()}
    external = system.topic("chat.replies.external").encode()
    for bucket in BUCKETS:
        await produce_all(system, f"chat.requests.{bucket}", [(request("gone"), of_gateway)] * late)
    of_others = [
        (request(name), {"ce_id": name.encode(), "deadline-unix-ms": past, "reply-topic": external}) for name in others
    ]
    await produce_all(system, "chat.requests.short", [*of_others, *((request(name), {}) for name in live)])
    async with system.reading("chat.replies") as gateways, system.reading("chat.replies.external") as replies:
        worker = await system.worker().ready()
        found = await answered(replies, others | live)
        assert {found[name]["source"] for name in live} == {"model"}
        assert {found[name]["reason"] for name in others} == {"deadline"}

        async def all_is_committed() -> bool:
            return sum((await system.committed()).values()) == 3 * late + len(others) + len(live)

        await eventually(all_is_committed)
        assert await gateways.to_the_end() == []
    assert sum(line["records"] for line in worker.logged("expired_skipped")) == 3 * late
    await worker.stop()


async def test_a_flood_of_one_bucket_does_not_keep_anothers_requests_out(
    system: System, unique: Callable[[str], str]
) -> None:
    """A hundred questions of three quarters of a second wait in one topic; one in another is read past them all and
    answered by the model within its eight seconds, and none of the flood is lost when the worker goes."""
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
    assert before <= after < before + len(flood), "what was only read is another worker's to answer"
