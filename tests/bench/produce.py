"""`replyline bench produce`: request records a second by our own producer, beside a bare one with the same options.

One Apache Kafka, one process, one event loop. Ours makes each record as a gateway does (settled, encoded, with its
headers) and hands it to `shared.kafka`; the bare one sends the bytes of one such record over and over by aiokafka.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from aiokafka import AIOKafkaProducer
from rich.console import Console

from ops.stack.kafka_broker import KafkaBroker
from ops.stack.own_services import own_kafka
from ops.texts.prompts import question
from shared.kafka import Outgoing, Producer, create_topics
from shared.process.clock import now_unix_ms
from shared.records.requests import Defaults, request_headers, settle
from shared.settings import Settings
from shared.wire.codec import msgpack_encode
from shared.wire.messages import ChatRequest
from shared.wire.topics import session_key
from tests.bench.cell import FAILED, Bench, Cell, Figures, Measure

OURS: Final = "our producer"
BARE: Final = "bare producer"
_SOURCE: Final = "replyline-bench"
_QUESTION: Final = question(24, seed=0)
_SESSIONS: Final = 10_000
_TOGETHER: Final = 500
_WARM_UP: Final = 2_000

Send = Callable[[int], Awaitable["asyncio.Future[Any]"]]


async def bench_produce(settings: Settings, bench: Bench, records: int, console: Console) -> None:
    """Raises `ServiceError`, `BrokerUnavailable`."""
    console.print("starting Apache Kafka")
    with KafkaBroker() as broker:
        settings = settings.model_copy(update={"kafka": own_kafka(settings.kafka, broker.bootstrap)})
        kafka = settings.kafka
        await create_topics(kafka, {kafka.topics.requests("short"): kafka.request_partitions})
        sender = Sender(settings, records, Defaults.of(settings))
        cells = [Cell(name=BARE, open=sender.bare), Cell(name=OURS, open=sender.ours, bases=(BARE,))]
        await bench.run(cells, console, records=records)


@dataclass(frozen=True, slots=True)
class Sender:
    settings: Settings
    records: int
    defaults: Defaults

    def record(self, number: int) -> Outgoing:
        """Return a request as a gateway would write it."""
        kafka, limits, defaults, now = self.settings.kafka, self.settings.limits, self.defaults, now_unix_ms()
        request = ChatRequest(
            id=f"bench_{number:024x}",
            session_id=f"bench-{number % _SESSIONS:012x}",
            input=_QUESTION,
            tenant=defaults.tenant,
            max_output_tokens=limits.default_output_tokens,
            created_unix_ms=int(now),
            deadline_unix_ms=int(now) + defaults.deadline_ms,
            first_token_unix_ms=int(now) + defaults.first_token_ms,
            reply_topic=kafka.topics.external_replies,
        )
        return Outgoing(
            kafka.topics.requests("short"),
            msgpack_encode(request),
            key=session_key(defaults.tenant, request.session_id),
            headers=request_headers(settle(request, defaults, now), source=_SOURCE),
        )

    @asynccontextmanager
    async def ours(self) -> AsyncIterator[Measure]:
        producer = Producer(self.settings.kafka, client_id=_SOURCE)
        await producer.start()
        try:
            yield self._measuring(lambda number: producer.enqueue(self.record(number)))
        finally:
            await producer.stop()

    @asynccontextmanager
    async def bare(self) -> AsyncIterator[Measure]:
        bootstrap = self.settings.kafka.bootstrap_servers
        producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=0)
        await producer.start()
        one = self.record(0)
        headers = list(one.headers.items())
        keys = [session_key("bench", str(number)) for number in range(_SESSIONS)]
        try:
            yield self._measuring(
                lambda number: producer.send(one.topic, one.value, keys[number % _SESSIONS], headers=headers)
            )
        finally:
            await producer.stop()

    def _measuring(self, send: Send) -> Measure:
        async def measure(_: int) -> Figures:
            await send_all(send, _WARM_UP)
            start_s, used_s = time.perf_counter(), time.process_time()
            failed = await send_all(send, self.records)
            took_s, used_s = time.perf_counter() - start_s, time.process_time() - used_s
            return {
                "records_per_s": round((self.records - failed) / took_s),
                "cpu_s_per_100k": round(used_s / self.records * 100_000, 3),
                FAILED: failed,
            }

        return measure


async def send_all(send: Send, count: int) -> int:
    """Send that many, some hundred at once; return how many the broker has not acknowledged."""
    failed = 0
    for first in range(0, count, _TOGETHER):
        numbers = range(first, min(count, first + _TOGETHER))
        said = await asyncio.gather(*[await send(number) for number in numbers], return_exceptions=True)
        failed += sum(isinstance(one, BaseException) for one in said)
    return failed
