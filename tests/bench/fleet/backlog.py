"""`replyline bench backlog`: how long a worker takes to get through a backlog of requests that are all too late.

Real Apache Kafka, Redis, one worker with the fake engine. The records are those of gateways (nine in ten: answered by
their gateway long ago, so passed over) and of other services (answered, each once), spread over all request topics.
"""

import asyncio
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console

from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.runner import check_writable, markdown, progress_bar, verdict, write_json
from ops.stack.own_services import own_kafka
from ops.stack.processes import ServiceError
from shared.kafka import Outgoing, PartitionReader, Producer
from shared.kafka.groups import GroupWatcher
from shared.process.clock import now_unix_ms
from shared.records.requests import Defaults, request_headers, settle
from shared.settings import Settings
from shared.settings.kafka import KafkaSettings
from shared.wire.codec import decode_reply, msgpack_encode
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.topics import BUCKETS, session_key

TARGET_S: Final = 5.0
RECORDS: Final = 100_000
_OTHERS_EVERY: Final = 10
_LATE_MS: Final = 3_600_000
_SPAN_MS: Final = 15_000
_ROUND: Final = 1_000
_QUESTION: Final = "I ordered two lamps last week and only one has arrived. When does the other one come? " * 2
_POLL_S: Final = 0.02
_LIMIT_S: Final = 120.0
_ENV: Final = {"WORKER__ENGINE": "fake"}

Positions = dict[tuple[str, int], int]


class BacklogResult(Struct, frozen=True, kw_only=True):
    """`clear_s` runs from the worker's readiness to the last offset committed, `start_s` from the start of its process.

    `answers` are the other services' requests answered, `repeated` what was said of one more than once, and
    `to_gateways` the records that a gateway got for nothing.
    """

    records: int
    of_gateways: int
    of_others: int
    clear_s: float
    start_s: float
    records_per_s: float
    answers: int
    repeated: int
    to_gateways: int


async def bench_backlog(settings: Settings, console: Console, *, records: int, json_path: Path | None) -> None:
    check_writable(json_path)
    facts = environment(engine="fake, no latency", broker="kafka")
    console.print("starting Apache Kafka and Redis")
    with System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        kafka = own_kafka(settings.kafka, system.bootstrap)
        topics = kafka.topics
        others = PartitionReader(kafka, client_id="bench", topic=topics.external_replies)
        gateways = PartitionReader(kafka, client_id="bench", topic=topics.replies)
        await others.start()
        await gateways.start()
        try:
            ends = await _fill(kafka, settings, records, console)
            result = await _clear(system, kafka, settings, ends, console)
            said = [done for done in await _read_all(others) if isinstance(done, ReplyDone)]
            wrong = len(await _read_all(gateways))
        finally:
            await others.stop()
            await gateways.stop()
    clear_s, start_s = result
    ids = {done.request_id for done in said}
    of_others = len(range(0, records, _OTHERS_EVERY))
    outcome = BacklogResult(
        records=records,
        of_gateways=records - of_others,
        of_others=of_others,
        clear_s=round(clear_s, 3),
        start_s=round(start_s, 3),
        records_per_s=round(records / clear_s),
        answers=len(ids),
        repeated=len(said) - len(ids),
        to_gateways=wrong,
    )
    _print(outcome)
    write_json(json_path, {"result": outcome, "environment": facts})


async def _fill(kafka: KafkaSettings, settings: Settings, records: int, console: Console) -> Positions:
    """Produce the backlog; returns each partition's end."""
    producer = Producer(kafka, client_id="bench")
    await producer.start()
    ends: Positions = {}
    backlog = _backlog(settings, records)
    try:
        with progress_bar(console, "records produced", records) as progress:
            for done in range(0, records, _ROUND):
                round_ = list(islice(backlog, _ROUND))
                acknowledgements = [await producer.enqueue(record) for record in round_]
                for record in round_:
                    partition = (record.topic, record.partition or 0)
                    ends[partition] = ends.get(partition, 0) + 1
                await asyncio.gather(*acknowledgements)
                progress(min(done + _ROUND, records))
    finally:
        await producer.stop()
    return ends


def _backlog(settings: Settings, records: int) -> Iterator[Outgoing]:
    """What gateways and other services would have written an hour ago."""
    topics, defaults = settings.kafka.topics, Defaults.of(settings)
    asked = int(now_unix_ms()) - _LATE_MS
    for number in range(records):
        of_other = number % _OTHERS_EVERY == 0
        request = ChatRequest(
            id=f"resp_{number:024x}",
            session_id=f"session-{number % 997}",
            input=_QUESTION,
            tenant=settings.tenant,
            created_unix_ms=asked,
            deadline_unix_ms=asked + _SPAN_MS,
            first_token_unix_ms=asked + _SPAN_MS // 5,
            reply_topic=topics.external_replies if of_other else topics.replies,
            reply_partition=None if of_other else 0,
        )
        order = settle(request, defaults, asked)
        yield Outgoing(
            topics.requests(BUCKETS[number % len(BUCKETS)]),
            msgpack_encode(request),
            key=session_key(order.tenant, request.session_id),
            partition=number // len(BUCKETS) % settings.kafka.request_partitions,
            headers=request_headers(order, source="bench"),
        )


async def _clear(
    system: System, kafka: KafkaSettings, settings: Settings, ends: Positions, console: Console
) -> tuple[float, float]:
    """Start a worker and wait until all is committed: seconds from its readiness, and from its start.

    Raises `ServiceError`.
    """
    console.print("the worker starts")
    async with GroupWatcher(kafka, kafka.topic_prefix + settings.worker.group) as group:
        began_s = time.monotonic()
        worker, _ = await system.start_worker()
        ready_s = time.monotonic()
        while (committed := await group.committed(ends)) != ends:
            if not worker.running or time.monotonic() - ready_s > _LIMIT_S:
                left = sum(ends.values()) - sum(committed.get(partition, 0) for partition in ends)
                raise ServiceError(f"{left} records are left after {_LIMIT_S:.0f} s, or the worker has ended")
            await asyncio.sleep(_POLL_S)
        now_s = time.monotonic()
    return now_s - ready_s, now_s - began_s


async def _read_all(reader: PartitionReader) -> list[object]:
    """Everything that has been written since the reader was started."""
    found: list[object] = []
    while records := await reader.read(timeout_ms=1_000):
        found += [decode_reply(record.value) for record in records]
    return found


def _print(result: BacklogResult) -> None:
    header = (
        "expired records",
        "of gateways / others",
        "ready → all committed s",
        "process start → s",
        "records /s",
        "answers to others",
        "said twice",
        "to gateways",
    )
    row = (
        result.records,
        f"{result.of_gateways} / {result.of_others}",
        result.clear_s,
        result.start_s,
        result.records_per_s,
        result.answers,
        result.repeated,
        result.to_gateways,
    )
    print(markdown(header, [row]))
    print(f"s from ready to all committed: {verdict(result.clear_s, TARGET_S)}")
    print(f"answers to others: {verdict(result.answers, result.of_others, at_least=True)}")
