"""Hold the state by which the gateway accepts or refuses questions (free room, the lanes' workers, the ladder of
models), update it from reports and replies, and publish its metrics and log lines."""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from gateway.destination.breaker import BreakerState
from gateway.destination.choose import PartitionOf, View
from gateway.destination.fleet import WorkerClocks
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from gateway.destination.memory_watch import MemoryWatch
from gateway.destination.partitions import skew
from gateway.destination.report import Report
from shared.process.clock import correction_ms, now_unix_ms, wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.versions.registry import Registry
from shared.versions.state import State
from shared.wire.lanes import CHAMPION
from shared.wire.messages import Reply, ReplyDone
from shared.wire.reports import WorkerReport
from shared.wire.topics import BUCKETS

log = get_logger()

_WATCH_S: Final = 1.0


@dataclass(slots=True)
class AdmissionGate:
    """The registry, the lanes' admissions and the ladder, with their metrics and logs. While `draining`, the gateway
    accepts no new requests."""

    admissions: LaneAdmissions
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    ladder: Ladder = field(default_factory=Ladder)
    registry: Registry = field(default_factory=Registry)
    partition_of: PartitionOf = lambda *_: None
    draining: bool = False
    _clocks: WorkerClocks = field(default_factory=WorkerClocks)
    report: Report = field(init=False)

    def __post_init__(self) -> None:
        self.report = Report(self.registry, self.admissions, self.ladder)

    @property
    def state(self) -> State:
        """Return the registry's current state."""
        return self.registry.state_at(wire_unix_ms())

    # --- requests

    def view(self, now_unix_ms: float) -> View:
        """Return the snapshot by which a question's destination is chosen now."""
        return View(
            now_unix_ms=now_unix_ms,
            state=self.registry.state_at(now_unix_ms + correction_ms()),
            admissions=self.admissions,
            ladder=self.ladder,
            partition_of=self.partition_of,
            sheds=self.memory.sheds,
        )

    def is_calm(self) -> bool:
        """Return whether the gateway is neither short of memory nor draining, all breakers of the champion's lane are
        closed, and the ladder's level is the champion's."""
        champion = self.admissions.of(CHAMPION)
        closed = champion.breaker.state is BreakerState.CLOSED and not champion.fleet.open_breakers()
        return closed and self.ladder.rung == CHAMPION and not self.memory.sheds and not self.draining

    def note_reply(self, reply: Reply, now: float) -> None:
        if isinstance(reply, ReplyDone) and reply.origin == "gateway":
            return  # a fallback published by a gateway is no evidence about the workers
        took_ms = self.admissions.note_first_reply(reply.request_id, now)
        if took_ms is not None:
            metrics.first_word.observe(took_ms / 1_000)
            self.report.log_breakers()

    # --- workers

    def update_worker(self, worker_id: str, report: WorkerReport | None) -> None:
        """Store a worker's newest report; None if the worker leaves."""
        if report is None:
            self._clocks.forget(worker_id)
            if self.admissions.forget(worker_id):
                log.info("worker_left", worker=worker_id)
        else:
            now = now_unix_ms()
            if self.admissions.observe(report, now):
                lane, slots, buckets = report.lane, report.slots, report.buckets
                log.info("worker_found", worker=worker_id, lane=lane, slots=slots, buckets=buckets)
            behind_ms = wire_unix_ms() - report.unix_ms  # including the report's way here
            if self._clocks.differs(worker_id, behind_ms, now):
                log.warning("clocks_differ", worker=worker_id, behind_ms=round(behind_ms), action="set both by NTP")
        self._count_workers()

    async def watch(self) -> None:
        """Until cancelled, log workers that fall silent or whose breakers change, and measure how unevenly the
        champion's are loaded."""
        while True:
            await asyncio.sleep(_WATCH_S)
            now = now_unix_ms()
            self.forget_silent(now)
            self.admissions.price()
            self.report.log_worker_breakers()
            self.ladder.rest(now)
            self.report.log_rung()
            fleet = self.admissions.of(CHAMPION).fleet
            metrics.partition_skew.set(max(skew(fleet.waits(bucket, now)) for bucket in BUCKETS))

    def forget_silent(self, now: float) -> None:
        for name in self.admissions.expire(now):
            self._clocks.forget(name)
            log.warning("worker_silent", worker=name)
        self._count_workers()

    def _count_workers(self) -> None:
        metrics.workers_known.set(len(self.admissions.of(CHAMPION).fleet))
