"""A request that the workers cannot meet gets a fallback immediately and is not published to Kafka."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import msgpack
import pytest
from aiokafka import AIOKafkaProducer, ConsumerRecord
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from shared.faq import FaqIndex
from shared.kafka import Producer
from tests.support.standstill import InTime
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.wire import JSON, MSGPACK, Answer, Client
from workers.schedule.outlook import Outlook
from workers.serving.capacity import CapacityPublisher

pytestmark = pytest.mark.system(
    workers=0,
    promise__first_token_ms=2_000,
    gateway__max_inflight_per_connection=10,
)

RETURNS = "How do I return an item?"
BUCKETS = ["short", "medium", "long"]
REPORT_S = 0.1
FAQ = ("completed", "stop", "faq")
# A gateway counts its fallbacks by reason.
FALLBACKS = "replyline_gateway_fallbacks_total"


def report(first_token_ms: float, *, worker_id: str = "w-0", skew_ms: float = 0.0) -> dict[str, Any]:
    return {
        "type": "chat.worker",
        "worker_id": worker_id,
        "unix_ms": int(time.time() * 1_000 + skew_ms),
        "buckets": BUCKETS,
        "slots": 4,
        "running": 4,
        "first_token_ms": dict.fromkeys(BUCKETS, first_token_ms),
        "service_ms": dict.fromkeys(BUCKETS, 1.0),
    }


@asynccontextmanager
async def worker_that_says(
    system: System, gateway: Service, first_token_ms: float, *, worker_id: str, leaves: bool = True, **fields: Any
) -> AsyncIterator[None]:
    """Send only a worker's reports and its last record; no process reads the requests."""

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=system.bootstrap) as producer:
            while True:
                value = msgpack.packb(report(first_token_ms, worker_id=worker_id, **fields))
                await producer.send_and_wait(system.topic("chat.workers"), value, key=worker_id.encode())
                await asyncio.sleep(REPORT_S)

    reporting = asyncio.create_task(run())
    try:
        await eventually(workers_known(gateway, 1))
        yield
    finally:
        reporting.cancel()
        with suppress(asyncio.CancelledError):
            await reporting
    if leaves:
        await system.produce("chat.workers", None, key=worker_id.encode())
        await eventually(workers_known(gateway, 0))


def workers_known(gateway: Service, number: int) -> Callable[[], Awaitable[bool]]:
    async def known() -> bool:
        return await gateway.metric("replyline_gateway_workers") == number

    return known


async def quiet(gateway: Service) -> None:
    """Wait until clients of earlier tests have been answered."""

    async def nothing_is_open() -> bool:
        return await gateway.metric("replyline_gateway_inflight") == 0

    await eventually(nothing_is_open)


async def published(system: System) -> int:
    async with system.reading("chat.requests.short") as tap:
        return len(await tap.to_the_end())


async def test_without_any_worker_the_faq_answers_by_the_soft_deadline(gateway: Service, in_time: InTime) -> None:
    """The client gets `response.created`, then the entry's text, grounded on that entry; the gateway is ready without a
    worker.
    """
    for form in (JSON, MSGPACK):
        async with Client.connect(gateway.ws, form) as client:
            answer = await client.ask(RETURNS, first_token_ms=400)
        assert answer.outcome == FAQ
        assert answer.took_s >= 0.399
        assert in_time(answer, 400)
        (entry,) = answer.response["grounding"]
        assert entry["answer"] == answer.text
        assert answer.text == FaqIndex.load(None).search(RETURNS)[0].entry.answer
        assert answer.response["usage"] == {}
        assert 399 <= answer.response["timings"]["ttft_ms"] <= answer.response["timings"]["total_ms"]


async def test_a_request_that_cannot_be_met_is_answered_immediately_and_not_published(
    system: System, gateway: Service
) -> None:
    """One request a second is published all the same, to test the prediction."""
    await quiet(gateway)
    before, had = await published(system), await gateway.metric(FALLBACKS, reason="infeasible")
    async with (
        worker_that_says(system, gateway, 60_000.0, worker_id="w-slow"),
        Client.connect(gateway.ws) as client,
    ):
        begun_s = time.monotonic()
        events = [await client.create(RETURNS) for _ in range(8)]  # the first, against the prediction
        for event_id in events:
            await client.created(event_id)
        took_s = time.monotonic() - begun_s
        answers = [await client.answer(event_id) for event_id in events]
    assert {answer.outcome for answer in answers} == {FAQ}
    infeasible = await gateway.metric(FALLBACKS, reason="infeasible") - had
    assert 1 <= 8 - infeasible <= 1 + took_s
    assert await published(system) == before + 8 - infeasible
    at_once = [answer for answer in answers if answer.response["timings"]["total_ms"] < 1_999]
    assert len(at_once) == infeasible, "the others by the deadline"
    assert all("eta_ms" not in answer.created for answer in at_once)


async def test_a_request_that_can_be_met_gets_its_predicted_time(system: System, gateway: Service) -> None:
    async with (
        worker_that_says(system, gateway, 321.0, worker_id="w-fast"),
        Client.connect(gateway.ws) as client,
    ):
        created = await client.created(await client.create(RETURNS))
    assert 321 <= created["eta_ms"] < 2_000


async def test_a_silent_worker_is_forgotten_and_requests_go_to_kafka_again(system: System, gateway: Service) -> None:
    await quiet(gateway)
    before = await published(system)
    infeasible, late = [await gateway.metric(FALLBACKS, reason=reason) for reason in ("infeasible", "deadline")]
    async with Client.connect(gateway.ws) as client:
        async with worker_that_says(system, gateway, 60_000.0, worker_id="w-silent", leaves=False):
            tried = [await client.create(RETURNS)]
            while await gateway.metric(FALLBACKS, reason="infeasible") == infeasible:  # one a second is tried
                tried.append(await client.create(RETURNS))
                await client.created(tried[-1])
        await eventually(workers_known(gateway, 0))
        assert gateway.logged("worker_silent", worker="w-silent")
        answers = [await client.answer(event_id) for event_id in tried]
        refused = await gateway.metric(FALLBACKS, reason="infeasible") - infeasible
        answers += [await client.ask(RETURNS, first_token_ms=700) for _ in range(3)]
    assert {answer.outcome for answer in answers} == {FAQ}
    assert 1 <= refused <= 2, "it is counted after `response.created`: one more request may be sent"
    assert await gateway.metric(FALLBACKS, reason="infeasible") == infeasible + refused
    assert await gateway.metric(FALLBACKS, reason="deadline") == late + len(answers) - refused
    assert await published(system) == before + len(answers) - refused


async def test_an_invalid_report_changes_nothing(system: System, gateway: Service) -> None:
    nonsense = [b"", b"\xc1", msgpack.packb({"type": "chat.worker"}), msgpack.packb(report(-1.0)), msgpack.packb(7)]
    nonsense.append(msgpack.packb(report(float("nan"))))
    ignored = await gateway.metric("replyline_records_ignored_total", what="report")
    for value in nonsense:
        await system.produce("chat.workers", value, key=b"w-0")
    async with worker_that_says(system, gateway, 10.0, worker_id="w-0"), Client.connect(gateway.ws) as client:
        assert "eta_ms" in await client.created(await client.create(RETURNS))
    assert await gateway.metric("replyline_records_ignored_total", what="report") == ignored + len(nonsense)
    assert await gateway.metric("replyline_dead_letters_total") == 0


async def test_a_worker_reports_at_intervals_on_a_change_and_when_it_leaves(system: System) -> None:
    """With an interval of ten seconds, the reports in between are large changes, the partitions it reads, and the
    tombstone at the end.
    """
    expected = Outlook(
        running=1, waiting=0, free_slots=3, backlog_ms=0.0, first_token_ms={"short": 10.0}, service_ms={"short": 5.0}
    )
    newest: list[Outlook | None] = [None]
    changed = asyncio.Event()
    topics, reads = system.kafka_settings.topics, list[frozenset[tuple[str, int]] | None]([None])
    producer = Producer(system.kafka_settings, client_id="worker")
    await producer.start()
    publisher = CapacityPublisher(
        producer=producer,
        topics=topics,
        worker_id="w-reports",
        buckets=("short",),
        interval_s=10,
        outlook=lambda: newest[-1],
        changed=changed,
        partitions=lambda: reads[-1],
    )
    reporting = asyncio.create_task(publisher.run())
    async with system.reading("chat.workers") as tap:
        for first_token_ms in (10.0, 20.0, 500.0):
            newest.append(replace(expected, first_token_ms={"short": first_token_ms}))
            changed.set()
            if first_token_ms != 20.0:  # no change
                await tap.until(lambda record, ms=first_token_ms: _tells(record, first_token_ms=ms))  # type: ignore[misc]
        reads.append(frozenset({(topics.requests("short"), 2), (topics.requests("long"), 1)}))
        await tap.until(lambda record: _tells(record, partitions=[2]))
        reporting.cancel()
        await publisher.leave()
        records = [record for record in await tap.to_the_end() if record.key == b"w-reports"]
    await producer.stop()
    assert [_first_token_ms(record) for record in records] == [10.0, 500.0, 500.0, None]
    assert msgpack.unpackb(records[0].value)["slots"] == 4


def _tells(record: ConsumerRecord, **short: Any) -> bool:
    """Return whether the report is this worker's and says so of short requests."""
    if record.key != b"w-reports" or not record.value:
        return False
    told = msgpack.unpackb(record.value)
    return all(told.get(name, {}).get("short") == value for name, value in short.items())


def _first_token_ms(record: ConsumerRecord) -> float | None:
    return msgpack.unpackb(record.value)["first_token_ms"]["short"] if record.value else None


async def test_the_report_topic_keeps_the_newest_report_of_each_worker(system: System) -> None:
    topic = ConfigResource(ConfigResourceType.TOPIC, system.topic("chat.workers"))
    admin = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
    await admin.start()

    async def policy() -> str | None:
        """A busy broker may answer without the settings."""
        (response,) = await admin.describe_configs([topic])
        (resource,) = response.resources
        return {entry[0]: entry[1] for entry in resource[4]}.get("cleanup.policy")

    try:
        assert "compact" in await eventually(policy)
    finally:
        await admin.close()


async def test_silent_workers_open_the_breaker_and_a_worker_closes_it(new_system: MakeSystem) -> None:
    """This gateway has received no report before; a gateway that knows workers has one breaker for each."""
    system = await new_system(
        promise__first_token_ms=200, gateway__max_inflight_per_connection=32, gateway__messages_per_minute=1_000_000
    )
    gateway = await system.gateway().ready()
    async with Client.connect(gateway.ws) as client:
        silent = [await client.create(RETURNS) for _ in range(25)]
        for event_id in silent:
            assert (await client.answer(event_id)).outcome == FAQ

        async def is_open() -> bool:
            answer = await client.ask(RETURNS)
            assert answer.outcome == FAQ
            return await gateway.metric(FALLBACKS, reason="breaker") > 0

        await eventually(is_open)
        opened, *_ = gateway.logged("breaker", state="open")
        assert opened["late"] >= 20
        await system.worker().ready()

        async def by_the_model() -> Answer | None:
            answer = await client.ask(RETURNS, max_output_tokens=2)
            return answer if answer.outcome[2] == "model" else None

        await eventually(by_the_model)

        async def is_closed() -> bool:
            await by_the_model()
            return bool(gateway.logged("breaker", state="closed"))

        await eventually(is_closed)

        async def is_counted_as_closed() -> bool:
            return await gateway.metric("replyline_gateway_guards", what="breaker") == 0

        await eventually(is_counted_as_closed)
