"""Run admission for the gateway: count its decisions and log its changes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from gateway.admission.breaker import BreakerState
from gateway.admission.control import AdmissionLimits, check_inflight, check_memory
from gateway.admission.ladder import Ladder
from gateway.admission.lanes import LaneAdmissions
from gateway.admission.placement import Asked, Placement
from gateway.admission.worker_clocks import WorkerClocks
from gateway.request.answer import FallbackReason
from gateway.request.entry import Entry
from gateway.serving.admission_log import AdmissionLog
from gateway.serving.memory_watch import MemoryWatch
from shared.process.clock import now_unix_ms, wire_unix_ms
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.versions.state import Rung
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.messages import Reply, ReplyDone, WorkerReport

log = get_logger()

_WATCH_S: Final = 1.0


@dataclass(slots=True)
class AdmissionGate:
    """The lanes' admissions and the ladder, with their metrics and logs. `draining`: the gateway shuts down, and
    accepts no new request."""

    admissions: LaneAdmissions
    memory: MemoryWatch = field(default_factory=MemoryWatch)
    ladder: Ladder = field(default_factory=Ladder)
    draining: bool = False
    _clocks: WorkerClocks = field(default_factory=WorkerClocks)
    _log: AdmissionLog = field(init=False)

    def __post_init__(self) -> None:
        self._log = AdmissionLog(self.admissions, self.ladder)

    # --- requests

    def check_room(self, limits: AdmissionLimits, *, inflight: int, of_connection: int) -> None:
        """Raise `ProtocolError` where one more unanswered request is one too many."""
        check_inflight(limits, inflight=inflight, of_connection=of_connection, draining=self.draining)
        check_memory(refuses=self.memory.refuses)

    def place(
        self, entry: Entry, partition_of: Callable[[Lane], int | None], hold: Rung | None, now: float
    ) -> tuple[Lane, FallbackReason | None]:
        """Return the lane whose workers get a request, and why the fallback is to answer at once; None where they get
        it. `hold` is where an operator holds the ladder."""
        lane = entry.publication.route.lane
        if self.memory.sheds:
            return lane, "memory"
        self.ladder.hold = hold
        lane, decision = self._placement.place(_asked(entry, partition_of), lane, now)
        self._log.tell_breakers()
        self._log.tell_rung()
        if decision.light is None and decision.eta_ms is not None:
            entry.publication.eta_ms = decision.eta_ms
        return lane, decision.light

    def place_below(self, entry: Entry, partition_of: Callable[[Lane], int | None], now: float) -> Lane | None:
        """Return the lane whose workers get a request that its own lane's have given up; None where none can answer in
        time."""
        placed = self._placement.place_below(_asked(entry, partition_of), entry.publication.route.lane, now)
        self._log.tell_rung()
        return None if placed is None else placed[0]

    @property
    def _placement(self) -> Placement:
        return Placement(self.admissions, self.ladder)

    def is_calm(self) -> bool:
        """Return whether memory is enough, and no breaker of the champion's lane is open, nor the ladder below it."""
        champion = self.admissions.of(CHAMPION)
        closed = champion.breaker.state is BreakerState.CLOSED and not champion.fleet.shut()
        return closed and self.ladder.rung == CHAMPION and not self.memory.sheds and not self.draining

    def note_reply(self, reply: Reply, now: float) -> None:
        if isinstance(reply, ReplyDone) and reply.origin == "gateway":
            return  # a fallback in the log says nothing of the workers
        took_ms = self.admissions.note_first_reply(reply.request_id, now)
        if took_ms is not None:
            metrics.first_word.observe(took_ms / 1_000)
            self._log.tell_breakers()

    def withdraw(self, entry: Entry) -> None:
        self.admissions.withdraw(entry.response_id)

    def release(self, entry: Entry) -> None:
        self.admissions.release(entry.response_id)

    # --- workers

    def update_worker(self, worker_id: str, report: WorkerReport | None) -> None:
        """Keep a worker's newest report; None: the worker leaves."""
        if report is None:
            self._clocks.forget(worker_id)
            if self.admissions.forget(worker_id):
                log.info("worker_left", worker=worker_id)
        else:
            now = now_unix_ms()
            if self.admissions.observe(report, now):
                lane, slots, buckets = report.lane, report.slots, report.buckets
                log.info("worker_found", worker=worker_id, lane=lane, slots=slots, buckets=buckets)
            behind_ms = wire_unix_ms() - report.unix_ms  # its way here included
            if self._clocks.differs(worker_id, behind_ms, now):
                log.warning("clocks_differ", worker=worker_id, behind_ms=round(behind_ms), action="set both by NTP")
        self._count_workers()

    async def watch(self) -> None:
        """Watch until cancelled for workers that fall silent or are switched off."""
        while True:
            await asyncio.sleep(_WATCH_S)
            self.forget_silent(now_unix_ms())
            self.admissions.price()
            self._log.tell_worker_breakers()
            self.ladder.rest(now_unix_ms())
            self._log.tell_rung()

    def forget_silent(self, now: float) -> None:
        for name in self.admissions.expire(now):
            self._clocks.forget(name)
            log.warning("worker_silent", worker=name)
        self._count_workers()

    def _count_workers(self) -> None:
        metrics.workers_known.set(len(self.admissions.of(CHAMPION).fleet))


def _asked(entry: Entry, partition_of: Callable[[Lane], int | None]) -> Asked:
    return Asked(
        request_id=entry.response_id,
        session=entry.request.session,
        bucket=entry.publication.bucket,
        deadline=entry.deadline,
        partition_of=partition_of,
        received_unix_ms=entry.request.received_unix_ms,
    )
