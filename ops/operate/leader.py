"""Elect one of several processes: the member of a consumer group that is assigned the topic's only partition."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Self

from shared.errors import BrokerUnavailable
from shared.kafka import GroupReader
from shared.process.clock import monotonic_s
from shared.settings.kafka import KafkaSettings
from shared.sockets.listening import ListenAddress, host_port
from shared.telemetry.availability import Availability
from shared.telemetry.logs import get_logger
from shared.telemetry.status import Readiness, serve_status
from shared.wire.topics import BROADCAST_PARTITION

log: Final = get_logger()

_LOOK_MS: Final = 250
_RETRY_S: Final = 1.0


@dataclass(slots=True)
class Leadership:
    """A process's membership in `group`. It reads no records and commits no offsets."""

    topic: str
    group: GroupReader
    _led: bool | None = None

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
            self._led = leads
            log.info("leadership", leads=leads, of=self.topic)
        return leads

    async def stop(self) -> None:
        await self.group.stop()


async def _part() -> None:
    """Release the partition without committing anything."""
