"""A cheap substitute for a worker in the gateway bench: it answers every request with paced deltas.

`python -m tests.bench.gateway.replier HOST:PORT PARTITIONS PREFIX`. Each delta carries its due time, by the monotonic
clock that every process of a machine shares. librdkafka sends in a separate thread.
"""

import heapq
import itertools
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final

import typer
from confluent_kafka import Consumer, Producer, TopicPartition

from ops.stack.system import READY
from shared.wire.codec import decode_request, msgpack_encode
from shared.wire.messages import ChatRequest, ReplyDelta, ReplyDone
from shared.wire.outcome import Timings, Usage
from shared.wire.topics import BUCKETS, TopicNames
from tests.bench.gateway.paced import DELTAS, INTERVAL_MS, delta_text

_POLL_S: Final = 0.001
_MAX_READ: Final = 500


@dataclass(slots=True)
class _Stream:
    request: ChatRequest
    start_s: float
    next_seq: int = 0
    parts: list[str] = field(default_factory=list)


class Replier:
    def __init__(self, producer: Any) -> None:
        self._producer = producer
        self._due: list[tuple[float, int, _Stream]] = []
        self._order = itertools.count()

    def take(self, request: ChatRequest, now_s: float) -> None:
        heapq.heappush(self._due, (now_s, next(self._order), _Stream(request, now_s)))

    def emit(self, now_s: float) -> None:
        """Send every delta that is due; the last one of a stream is followed by its terminal event."""
        self._producer.poll(0)
        while self._due and self._due[0][0] <= now_s:
            due_s, order, stream = self._due[0]
            self._delta(stream, due_s)
            if stream.next_seq == DELTAS:
                heapq.heappop(self._due)
                self._done(stream)
            else:
                next_s = stream.start_s + stream.next_seq * INTERVAL_MS / 1_000
                heapq.heapreplace(self._due, (next_s, order, stream))

    def _delta(self, stream: _Stream, due_s: float) -> None:
        request, text = stream.request, delta_text(due_s)
        stream.parts.append(text)
        delta = ReplyDelta(
            request_id=request.id,
            session_id=request.session_id,
            attempt=1,
            seq=stream.next_seq,
            offset=stream.next_seq * len(text),
            delta=text,
        )
        stream.next_seq += 1
        self._send(request, delta)

    def _done(self, stream: _Stream) -> None:
        done = ReplyDone(
            request_id=stream.request.id,
            session_id=stream.request.session_id,
            attempt=1,
            status="completed",
            reason="stop",
            source="model",
            output_text="".join(stream.parts),
            usage=Usage(input_tokens=8, output_tokens=DELTAS),
            timings=Timings(),
            model="replier",
        )
        self._send(stream.request, done)

    def _send(self, request: ChatRequest, reply: ReplyDelta | ReplyDone) -> None:
        self._producer.produce(
            request.reply_topic,
            msgpack_encode(reply),
            key=request.session_id.encode(),
            partition=request.reply_partition or 0,
        )


def serve(bootstrap: str, partitions: int, prefix: str) -> None:
    common = {"bootstrap.servers": bootstrap}
    consumer = Consumer({**common, "group.id": "bench-replier", "enable.auto.commit": False, "fetch.wait.max.ms": 50})
    topics = TopicNames(prefix)
    consumer.assign([TopicPartition(topics.requests(one), at, 0) for one in BUCKETS for at in range(partitions)])
    replier = Replier(Producer({**common, "acks": "all", "linger.ms": 1, "queue.buffering.max.messages": 1_000_000}))
    sys.stdout.write(f"{READY}\n")
    sys.stdout.flush()
    while True:
        for record in consumer.consume(_MAX_READ, timeout=_POLL_S):
            if record.error() is None:
                replier.take(decode_request(record.value()), time.monotonic())
        replier.emit(time.monotonic())


if __name__ == "__main__":
    typer.run(serve)
