"""What it costs a gateway to read another's replies again: CPU of the reading thread, from the embedded broker."""

import asyncio
import time
from typing import Final

from gateway.kafka.log_follower import LogFollower
from gateway.request.cursor import Place
from ops.stack.embedded import EmbeddedKafka
from shared.kafka import LogReader, Outgoing, Producer
from shared.settings.kafka import KafkaSettings
from shared.wire.codec import msgpack_encode
from shared.wire.messages import Reply, ReplyDelta

_TOPIC: Final = "chat.replies"
_RECORDS: Final = 15_000  # what the broker keeps of a partition
_SESSIONS: Final = 1_000
_IN_FLIGHT: Final = 1_000
_TIMES: Final = 5


async def pass_us() -> float:
    """Microseconds of CPU to pass over a record of a session that is not followed here; the least of a few times."""
    with EmbeddedKafka() as broker:
        broker.create({_TOPIC: 1})
        kafka = KafkaSettings(bootstrap_servers=broker.bootstrap, fetch_max_wait_ms=10)
        await _write(kafka)
        return min([await _read_once(kafka) for _ in range(_TIMES)])


async def _write(kafka: KafkaSettings) -> None:
    producer = Producer(kafka, client_id="bench")
    await producer.start()
    for first in range(0, _RECORDS, _IN_FLIGHT):
        records = [_record(number) for number in range(first, first + _IN_FLIGHT)]
        await asyncio.gather(*[await producer.enqueue(record) for record in records])
    await producer.stop()


def _record(number: int) -> Outgoing:
    session, seq = number % _SESSIONS, number // _SESSIONS
    delta = ReplyDelta(
        request_id=f"resp_{session:024x}",
        session_id=f"sess_{session:032x}",
        attempt=1,
        seq=seq,
        offset=5 * seq,
        delta=" five",
    )
    return Outgoing(_TOPIC, msgpack_encode(delta), key=delta.session_id.encode(), partition=0)


async def _read_once(kafka: KafkaSettings) -> float:
    """All of it, for one session of a thousand."""
    told: list[Reply] = []
    follower = LogFollower(
        lambda number: LogReader(kafka, client_id="bench", topic=_TOPIC, partition=number), told.extend
    )
    start_s = time.thread_time()
    await follower.join(Place(0, 0), f"sess_{0:032x}", f"resp_{0:024x}")
    took_s = time.thread_time() - start_s
    await follower.stop()
    assert len(told) == _RECORDS // _SESSIONS, "the log was not read whole"
    return took_s / _RECORDS * 1e6
