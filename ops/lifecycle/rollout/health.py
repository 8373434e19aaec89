"""Watch the system around a rollout: workers' and gateways' reports, waiting requests, gateways' pages."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from gateway.outbound.calls import CallError, Calls
from ops.lifecycle.rollout.surroundings import Surroundings
from ops.operate.diagnose.pages import Page, parse_page
from shared.errors import BrokerUnavailable
from shared.kafka import PartitionReader, group_lag
from shared.process.clock import now_unix_ms
from shared.records.log_readers import read_demand, read_reports
from shared.settings.kafka import KafkaSettings
from shared.telemetry.faults import caught
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS, in_lane

_LOOK_S: Final = 2.0
_BREAKER_OPEN: Final = 2.0


@dataclass(slots=True)
class Watch:
    """`gateways` are the addresses of `/metrics` of gateways that do not write to this Kafka's `chat.demand`."""

    kafka: KafkaSettings
    gateways: Sequence[str]
    calls: Calls
    reports: PartitionReader
    around: Surroundings = field(default_factory=Surroundings)

    async def follow(self) -> None:
        """Read the workers' reports until cancelled."""
        await read_reports(self.reports, lambda name, said: self.around.observe_worker(name, said, now_unix_ms()))

    async def follow_gateways(self) -> None:
        """Read the gateways' reports until cancelled."""
        topic = self.kafka.topics.demand
        reader = PartitionReader(self.kafka, client_id="replyline-rollout", topic=topic, unhurried=True)
        try:
            await read_demand(reader, lambda name, said: self.around.observe_gateway(name, said, now_unix_ms()))
        finally:
            await reader.stop()

    async def look(self) -> None:
        """Look at the lag and the gateways' pages every two seconds, until cancelled. A look that fails is a fault of
        the health, not the end of the controller."""
        while True:
            if self.around.since_unix_ms is None and self.reports.next_offset(BROADCAST_PARTITION) is not None:
                self.around.since_unix_ms = now_unix_ms()
            try:
                found = await asyncio.gather(self._lag(), *(self._gateway(address) for address in self.gateways))
                self.around.faults = [reason for reason in found if reason is not None]
            except Exception as error:  # noqa: BLE001 - counted and logged; the rollout is frozen
                caught("task", error)
                self.around.faults = [f"the look at lag and gateways failed: {type(error).__name__}"]
            await asyncio.sleep(_LOOK_S)

    async def _lag(self) -> str | None:
        """Count the waiting records of each lane that has workers; return why they could not be counted."""
        group, topics = self.kafka.workers_group, self.kafka.topics
        try:
            for lane, workers in self.around.lanes.items():
                of_lane = [topics.requests(bucket, lane) for bucket in BUCKETS]
                lag = await group_lag(self.kafka, in_lane(group, lane), of_lane) if workers.slots(now_unix_ms()) else {}
                self.around.waiting[lane] = sum(lag.values())
        except BrokerUnavailable as error:
            return str(error)
        return None

    async def _gateway(self, address: str) -> str | None:
        """Return what is wrong at a gateway's page. A page that cannot be read says nothing, so it is wrong too."""
        try:
            page = parse_page((await self.calls.call("GET", address)).decode())
        except (CallError, ValueError) as error:
            return f"--gateway {address}: no page of metrics ({error}); write http://HOST:PORT/metrics of a gateway"
        return gateway_fault(page, address)


def gateway_fault(page: Page, address: str) -> str | None:
    """Return what on a gateway's page makes a judgement unfair; None if nothing does."""
    rungs = list(page.values("replyline_gateway_rung"))
    if not rungs:
        return f"--gateway {address}: is no page of a gateway; write http://HOST:PORT/metrics of a gateway"
    if _BREAKER_OPEN in page.values("replyline_gateway_guards", what="breaker"):
        return f"the breaker of {address} is open"
    return f"the ladder of {address} is below the champion" if any(rung > 0 for rung in rungs) else None
