"""Publish this gateway's demand and condition to `chat.demand` once a second.

The autoscaler sizes the fleet by the demand, and a rollout's controller promotes no version without these reports.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.process.clock import wire_unix_ms
from shared.telemetry.availability import Availability
from shared.wire.codec import msgpack_encode
from shared.wire.scaling import DemandReport
from shared.wire.topics import BROADCAST_PARTITION

_INTERVAL_S: Final = 1.0
_LEAVE_S: Final = 1.0


@dataclass(slots=True, kw_only=True)
class DemandPublisher:
    producer: Producer
    topic: str
    gateway_id: str
    admissions: LaneAdmissions
    ladder: Ladder
    epoch: Callable[[], int]
    since_unix_ms: int = field(default_factory=lambda: int(wire_unix_ms()))
    _reports: Availability = field(default_factory=lambda: Availability("demand reports"))

    async def run(self) -> None:
        """Publish reports until cancelled."""
        while True:
            report = DemandReport(
                gateway_id=self.gateway_id,
                unix_ms=int(wire_unix_ms()),
                since_unix_ms=self.since_unix_ms,
                asked=self.admissions.demand.asked(),
                epoch=self.epoch(),
                rung=self.ladder.rung,
                breakers=self.admissions.open_lanes(),
            )
            await self._publish(msgpack_encode(report))
            await asyncio.sleep(_INTERVAL_S)

    async def leave(self) -> None:
        """Publish a record without a value: this gateway is leaving. Without Kafka, the end of its reports shows
        that."""
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._publish(None)
        except TimeoutError:
            pass

    async def _publish(self, value: bytes | None) -> None:
        """Publish a report. A report that fails is not retried: the next one has its counts."""
        record = Outgoing(self.topic, value, key=self.gateway_id.encode(), partition=BROADCAST_PARTITION)
        try:
            await self.producer.publish(record)
        except (BrokerUnavailable, ProtocolError) as error:
            self._reports.mark_down(str(error), action="the autoscaler keeps its last decision")
        else:
            self._reports.mark_up()
