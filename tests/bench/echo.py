"""The path's bare prototype: the same hops, and as little as can be on each.

    client → websockets server → Kafka → echo → Kafka → websockets server → client

`python -m tests.bench.echo gateway|worker HOST:PORT [--port N]`. It is what the whole path's latency is
divided by: uvloop, aiokafka with the same producer and consumer options, one partition a topic, no thought.
`echo_latencies_ms` is its load.
"""

import asyncio
import struct
import time
from collections.abc import Sequence
from typing import Any, Final

import typer
import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from websockets.asyncio.server import ServerConnection, serve

from ops.lab.client.dialogue import SUBPROTOCOL
from ops.lab.client.wire import Wire
from ops.measure.pacer import Pacer
from ops.stack.system import READY

REQUESTS: Final = "bench.echo.requests"
REPLIES: Final = "bench.echo.replies"
_ADDRESS_BYTES: Final = 4
_NUMBER: Final = struct.Struct(">I")
_START_S: Final = 0.05
_PATIENCE_S: Final = 10.0


async def _producer(bootstrap: str) -> Any:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, linger_ms=0)
    await producer.start()
    return producer


async def _consumer(bootstrap: str, topic: str) -> Any:
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, fetch_max_wait_ms=100, check_crcs=False)
    await consumer.start()
    partition = TopicPartition(topic, 0)
    consumer.assign([partition])
    await consumer.seek_to_end(partition)
    await consumer.position(partition)
    return consumer


async def gateway(bootstrap: str, port: int) -> None:
    """A frame becomes a record, the connection's number before it; the record that comes back, a frame."""
    producer, consumer = await _producer(bootstrap), await _consumer(bootstrap, REPLIES)
    sockets: dict[bytes, ServerConnection] = {}

    async def handle(socket: ServerConnection) -> None:
        address = len(sockets).to_bytes(_ADDRESS_BYTES, "big")
        sockets[address] = socket
        async for frame in socket:
            await producer.send(REQUESTS, value=address + bytes(frame), partition=0)  # type: ignore[arg-type]

    async with serve(handle, "127.0.0.1", port, compression=None, ping_interval=None):
        print(READY, flush=True)
        while True:
            for records in (await consumer.getmany(timeout_ms=500)).values():
                for record in records:
                    await sockets[record.value[:_ADDRESS_BYTES]].send(record.value[_ADDRESS_BYTES:])


async def worker(bootstrap: str) -> None:
    producer, consumer = await _producer(bootstrap), await _consumer(bootstrap, REQUESTS)
    print(READY, flush=True)
    while True:
        for records in (await consumer.getmany(timeout_ms=500)).values():
            for record in records:
                await producer.send(REPLIES, value=record.value, partition=0)


async def echo_latencies_ms(url: str, times: Sequence[float], *, connections: int, payload: bytes) -> list[float]:
    """Scheduled send to the frame's return, of each that came back; in the order of return."""
    latencies: list[float] = []
    due_s: list[float] = []
    finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def on_frame(frame: bytes, now: float) -> None:
        latencies.append((now - due_s[_NUMBER.unpack_from(frame)[0]]) * 1_000)
        if len(latencies) == len(due_s) and not finished.done():
            finished.set_result(None)

    wires = [
        await Wire.connect(url, subprotocol=SUBPROTOCOL, on_frame=on_frame, on_lost=lambda _: None)
        for _ in range(connections)
    ]
    start_s = time.monotonic() + _START_S
    due_s[:] = [start_s + offset for offset in times]
    pacer = Pacer(due_s, lambda index: wires[index % connections].send(_NUMBER.pack(index) + payload))
    try:
        async with asyncio.timeout(times[-1] + _PATIENCE_S):
            await finished
    except TimeoutError:
        pass  # what did not come back is missing in the count
    finally:
        pacer.close()
        for wire in wires:
            wire.close()
    return latencies


def main(part: str, bootstrap: str, port: int = 0) -> None:
    uvloop.run(gateway(bootstrap, port) if part == "gateway" else worker(bootstrap))


if __name__ == "__main__":
    typer.run(main)
