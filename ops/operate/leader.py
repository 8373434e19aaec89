"""Elect one of several processes: the member of a consumer group that is assigned the topic's only partition.

The leader commits a lease to the group every few seconds, so that a command can name it.
"""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from typing import Final, Self

from msgspec import MsgspecError, Struct, json

from ops.operate.letters import when
from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader, committed_note
from shared.process.clock import monotonic_s, wire_unix_ms
from shared.settings.kafka import KafkaSettings
from shared.sockets.listening import ListenAddress, host_port
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.telemetry.status import Readiness, serve_status
from shared.wire.topics import BROADCAST_PARTITION

log: Final = get_logger()

_LOOK_MS: Final = 250
_RETRY_S: Final = 1.0
_SAID_EVERY_MS: Final = 3_000
_LEASE_MS: Final = 12_000


class Lease(Struct, frozen=True):
    """The process that leads, since when, and when it last said so, in Unix ms."""

    holder: str
    since_unix_ms: int
    unix_ms: int

    @property
    def said(self) -> str:
        return f"{self.holder} since {when(self.since_unix_ms)}"

    def holds(self, now_unix_ms: float) -> bool:
        return now_unix_ms - self.unix_ms < _LEASE_MS


async def lease_of(kafka: KafkaSettings, *, topic: str, group: str) -> Lease | None:
    """Return the lease of the process that leads or led last; None if it has left, or none ever led. Raises
    `BrokerUnavailable`."""
    note = await committed_note(kafka, f"{kafka.topic_prefix}{group}", (topic, BROADCAST_PARTITION))
    try:
        return json.decode(note, type=Lease) if note else None
    except MsgspecError:  # of another release
        return None


@dataclass(slots=True)
class Leadership:
    """A process's membership in `group`. It reads no records; what it commits is its lease."""

    topic: str
    group: GroupReader
    _led: bool | None = None
    _since_unix_ms: int = 0
    _said_unix_ms: int = 0

    @classmethod
    def of(cls, kafka: KafkaSettings, *, client_id: str, topic: str, group: str) -> Self:
        name = f"{kafka.topic_prefix}{group}"
        return cls(topic, GroupReader(kafka, client_id=client_id, topics=[topic], group=name))

    @asynccontextmanager
    async def status(self, address: ListenAddress) -> AsyncIterator[None]:
        """Serve the process's pages for operators, and log where. Raises `ListenError`."""
        readiness = Readiness({"kafka": lambda: None if self.group.connected else "not connected"})
        async with await serve_status(address, readiness) as server:
            port = next(iter(server.sockets)).getsockname()[1]
            log.info("controller_ready", metrics=f"http://{host_port(address.host, port)}/metrics")
            yield

    async def act(self, turn: Callable[[], Awaitable[None]], outage: Availability) -> None:
        """Join the group once Kafka is available, then call `turn` repeatedly until cancelled. `turn` calls `leads`. If
        the broker is unavailable, the turn is repeated."""
        await self.group.start(_part)
        while True:
            try:
                await turn()
            except BrokerUnavailable as error:
                outage.report_down(str(error), monotonic_s())
                await asyncio.sleep(_RETRY_S)

    async def leads(self) -> bool | None:
        """Stay in the group for a moment. Return whether this member leads; None during a rebalance. Raises
        `BrokerUnavailable`."""
        self.group.rest(self.group.topics)
        await self.group.read(timeout_ms=_LOOK_MS, max_records=1)
        held = self.group.partitions
        leads = None if held is None else (self.topic, BROADCAST_PARTITION) in held
        if leads is not None and leads != self._led:
            self._led, self._since_unix_ms, self._said_unix_ms = leads, round(wire_unix_ms()), 0
            log.info("leadership", leads=leads, of=self.topic)
        if leads and abs(wire_unix_ms() - self._said_unix_ms) >= _SAID_EVERY_MS:
            self._said_unix_ms = round(wire_unix_ms())
            lease = Lease(f"{socket.gethostname()}:{os.getpid()}", self._since_unix_ms, self._said_unix_ms)
            await self._commit(json.encode(lease).decode())
        return leads

    async def _commit(self, note: str) -> None:
        place = (self.topic, BROADCAST_PARTITION)
        await self.group.commit({place: 0}, {place: note})

    async def stop(self) -> None:
        """Leave the group; the lease of a leader ends."""
        if self._led:
            with suppress(BrokerUnavailable):
                await self._commit("")
        await self.group.stop()


async def _part() -> None:
    """Release the partition without committing anything."""
