"""A replacement for a worker in the test's event loop: each question specifies its own answer."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import msgspec
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from shared.wire.codec import decode_request
from shared.wire.messages import ChatRequest, ReplyDelta, ReplyDone
from shared.wire.topics import BUCKETS
from tests.support.builders.wire import delta, done
from tests.support.system import System

# All answers of a gateway go to one partition, a batch at a time.
_BATCH_BYTES: Final = 900_000


class Script(msgspec.Struct, frozen=True):
    """An answer as its question specifies: this many deltas of this many characters, one every this many seconds."""

    deltas: int
    chars: int
    every_s: float

    @property
    def question(self) -> str:
        return msgspec.json.encode(self).decode()


@asynccontextmanager
async def answering(system: System) -> AsyncIterator[None]:
    """Answer each question by its script. It sends no reports, so a gateway sends it everything."""
    names = system.kafka_settings.topics
    topics = [names.requests(bucket) for bucket in BUCKETS]
    async with (
        AIOKafkaConsumer(*topics, bootstrap_servers=system.bootstrap, auto_offset_reset="earliest") as consumer,
        AIOKafkaProducer(
            bootstrap_servers=system.bootstrap, acks=1, linger_ms=2, max_batch_size=_BATCH_BYTES
        ) as producer,
    ):
        reading = asyncio.create_task(_read(consumer, producer))
        yield
        reading.cancel()
        with suppress(asyncio.CancelledError):
            await reading


async def _read(consumer: AIOKafkaConsumer, producer: AIOKafkaProducer) -> None:
    async with asyncio.TaskGroup() as answers:
        async for record in consumer:
            answers.create_task(_answer(decode_request(record.value), producer))


async def _answer(request: ChatRequest, producer: AIOKafkaProducer) -> None:
    script = msgspec.json.decode(request.input, type=Script)
    text = "x" * script.chars
    for seq in range(script.deltas):
        if seq:
            await asyncio.sleep(script.every_s)
        await _send(producer, request, delta(text, seq * script.chars, seq, request.id, session_id=request.session_id))
    await _send(producer, request, done(text * script.deltas, request.id, session_id=request.session_id))


async def _send(producer: AIOKafkaProducer, request: ChatRequest, reply: ReplyDelta | ReplyDone) -> None:
    assert request.reply_topic is not None
    await producer.send(request.reply_topic, msgspec.msgpack.encode(reply), partition=request.reply_partition)
