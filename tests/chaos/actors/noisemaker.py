"""Sends hostile data to Kafka and to the gateways during the load."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Final

from ops.lab.client.wire import reset_on_close
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer, scan
from shared.settings.kafka import KafkaSettings
from shared.wire.topics import BUCKETS, TopicNames
from tests.chaos.ledger.requests import Line
from tests.support.hostile.connections import hostile_connections
from tests.support.hostile.poison_records import MALFORMED, POISON
from tests.support.rfc6455 import handshake

_EVERY_S: Final = 0.02
_REACH_S: Final = 1.0
_RECORDS_A_CONNECTION: Final = 5
_LISTEN_S: Final = 0.3
_READ_BYTES: Final = 1 << 16


def draw_record(chance: Random, names: TopicNames) -> Outgoing:
    """Poison for any topic that a gateway or a worker reads, mostly for those of requests."""
    others = (names.replies, names.cancels, names.erasures, names.workers)
    if chance.randrange(3) == 0:
        return Outgoing(chance.choice(others), chance.choice(list(MALFORMED.values())).value)
    poison = chance.choice(list(POISON.values()))
    topic = chance.choice((names.inbox, *(names.requests(bucket) for bucket in BUCKETS)))
    return Outgoing(topic, poison.value, headers=poison.headers)


@dataclass(slots=True)
class Noisemaker:
    """A sender of invalid traffic. `settings` contain Kafka's address, `gateway_ports` are on 127.0.0.1. `num_records`
    counts the acknowledged records, `num_connections` the connections to which everything was written that they
    accepted."""

    settings: KafkaSettings
    gateway_ports: Sequence[int]
    chance: Random
    lines: list[Line] = field(default_factory=list)
    num_records: int = 0
    num_connections: int = 0

    async def make(self, for_s: float) -> None:
        """Send fifty records and open ten connections a second; fewer while Kafka or a gateway is unavailable."""
        self.lines.append(Line(time.monotonic(), f"noise for {for_s} s"))
        until_s = time.monotonic() + for_s
        producer = Producer(self.settings, client_id="noise")
        with suppress(TimeoutError):
            async with asyncio.timeout(_REACH_S):
                await producer.start()
        async with asyncio.TaskGroup() as group:
            for turn in count():
                if time.monotonic() >= until_s:
                    break
                group.create_task(self._record(producer))
                if turn % _RECORDS_A_CONNECTION == 0:
                    group.create_task(self._connection(self.chance.choice(self.gateway_ports)))
                await asyncio.sleep(_EVERY_S)
        await producer.stop()
        self.lines.append(Line(time.monotonic(), "noise over"))

    async def letters(self) -> int:
        """How many dead letters there are. Raises `BrokerUnavailable`."""
        return sum([1 async for _ in scan(self.settings, self.settings.topics.dead_letters)])

    async def _record(self, producer: Producer) -> None:
        with suppress(BrokerUnavailable, ProtocolError):
            await producer.publish(draw_record(self.chance, self.settings.topics))
            self.num_records += 1

    async def _connection(self, port: int) -> None:
        hostile = next(hostile_connections(self.chance))
        greeting = [] if hostile.subprotocol is None else [handshake(hostile.subprotocol)]
        with suppress(OSError, TimeoutError):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            try:
                async with asyncio.timeout(_LISTEN_S):
                    for piece in (*greeting, *hostile.pieces):
                        writer.write(piece)
                        await writer.drain()
                    self.num_connections += 1
                    while await reader.read(_READ_BYTES):
                        pass
            finally:
                reset_on_close(writer.transport)
                writer.transport.abort()
