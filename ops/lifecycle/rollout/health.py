"""The state of the system around a rollout: workers' reports, waiting requests, gateways' breakers."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from typing import Final

from ops.lifecycle.versions.workers import SILENT_MS, LaneWorkers
from ops.operate.diagnose.pages import Page, parse_page
from ops.stack.own_pages import open_page
from shared.errors import BrokerUnavailable
from shared.kafka import PartitionReader, group_lag
from shared.nouns import counted
from shared.process.clock import monotonic_s, now_unix_ms
from shared.records.log_readers import read_reports
from shared.settings.kafka import KafkaSettings
from shared.wire.fields import Revision
from shared.wire.lanes import CHAMPION
from shared.wire.messages import WorkerReport
from shared.wire.topics import BROADCAST_PARTITION, BUCKETS

_LOOK_S: Final = 2.0
_PATIENCE_S: Final = 2.0
_REQUESTS_A_SLOT: Final = 4
_BREAKER_OPEN: Final = 2.0


@dataclass(slots=True)
class Watch:
    """`gateways` are the addresses of their `/metrics`. `degraded` are the reasons found at the last look. Reports
    are read since `_since_s`; None before."""

    kafka: KafkaSettings
    gateways: Sequence[str]
    reports: PartitionReader
    degraded: list[str] = field(default_factory=list)
    _champions: LaneWorkers = field(default_factory=lambda: LaneWorkers(CHAMPION))
    _since_s: float | None = None

    async def follow(self) -> None:
        """Read the workers' reports until cancelled."""
        await read_reports(self.reports, self._observe)

    async def look(self) -> None:
        """Look at the system every two seconds, until cancelled."""
        while True:
            if self._since_s is None and self.reports.next_offset(BROADCAST_PARTITION) is not None:
                self._since_s = monotonic_s()
            found = await asyncio.gather(self._lag(), *(self._gateway(address) for address in self.gateways))
            self.degraded = [reason for reason in found if reason is not None]
            await asyncio.sleep(_LOOK_S)

    def have_loaded(self, version: Revision) -> bool:
        """Return whether each live worker of the champion's lane has a version loaded; not before all have had the
        time to report, nor while those that were heard are all silent, as after an outage of Kafka."""
        if self._since_s is None or (monotonic_s() - self._since_s) * 1_000 < SILENT_MS:
            return False
        loaded = self._champions.loaded(version, now_unix_ms())
        return all(loaded.values()) and (bool(loaded) or not self._champions.heard)

    def _observe(self, worker_id: str, report: WorkerReport | None) -> None:
        self._champions.observe(worker_id, report, now_unix_ms())

    async def _lag(self) -> str | None:
        """Return how much waits where it is more than a few requests a slot."""
        topics = [self.kafka.topics.requests(bucket) for bucket in BUCKETS]
        try:
            waiting = sum((await group_lag(self.kafka, self.kafka.workers_group, topics)).values())
        except BrokerUnavailable as error:
            return str(error)
        slots = sum(report.slots for report in self._champions.live(now_unix_ms()).values())
        behind = bool(slots) and waiting > _REQUESTS_A_SLOT * slots
        return f"{waiting} requests wait for {counted(slots, 'slot')}" if behind else None

    async def _gateway(self, address: str) -> str | None:
        """Return what a gateway lacks. One that does not answer is its deployer's matter: its alert fires."""
        try:
            page = await asyncio.to_thread(_read, address)
        except (OSError, HTTPException, ValueError):
            return None
        return ails(page, address)


def ails(page: Page, address: str) -> str | None:
    """Return what a gateway says on its page that makes a judgement unfair; None where nothing does."""
    if _BREAKER_OPEN in page.values("replyline_gateway_guards", what="breaker"):
        return f"the breaker of {address} is open"
    is_below = any(rung > 0 for rung in page.values("replyline_gateway_rung"))
    return f"the ladder of {address} is below the champion" if is_below else None


def _read(address: str) -> Page:
    with open_page(address, timeout_s=_PATIENCE_S) as answer:
        return parse_page(answer.read().decode())
