"""The path's bare prototype: the same hops, and as little as can be on each.

    client → websockets server → Kafka → echo → Kafka → websockets server → client

`python -m tests.bench.echo gateway|worker --bootstrap HOST:PORT [--port N]`. It is what the whole path's latency is
divided by: uvloop, aiokafka with the same producer and consumer options, one partition a topic, no thought.
"""

import argparse
from typing import Any, Final

import uvloop
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from websockets.asyncio.server import ServerConnection, serve

from ops.load.system import READY

REQUESTS: Final = "bench.echo.requests"
REPLIES: Final = "bench.echo.replies"
_ADDRESS_BYTES: Final = 4


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


def main() -> None:
    parser = argparse.ArgumentParser(description="one hop of the path's bare prototype")
    parser.add_argument("part", choices=["gateway", "worker"])
    parser.add_argument("--bootstrap", required=True)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    uvloop.run(gateway(options.bootstrap, options.port) if options.part == "gateway" else worker(options.bootstrap))


if __name__ == "__main__":
    main()
