"""The gateway in front of a simulated worker: its own admission code, with the same input as in the processes. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from gateway.destination.admission import Admission, AdmissionLimits, AdmissionPolicy, check_inflight
from ops.traces.trace import Request
from shared.errors import ProtocolError
from shared.settings import Settings
from shared.wire.deadline import Deadline
from shared.wire.topics import BUCKETS
from workers.schedule.outlook import Outlook
from workers.schedule.scheduler import Scheduler
from workers.serving.capacity import REPORT_INTERVAL_S

Verdict = Literal["accept", "fallback", "refuse"]

_ONLY: Final = 0  # the partition of a worker that is alone
_POLL_MS: Final = 50.0  # as `workers/serving/capacity.py` looks for changes


@dataclass(slots=True)
class Gate:
    """Call `decide` for each request. For an accepted one, call `record_first_reply` at the worker's first reply, and
    `ended` at its end.

    `worker_id` reads `partitions` of each request topic. The workers of a fleet have a gate each and one admission.
    """

    admission: Admission
    limits: AdmissionLimits
    worker_id: str = "simulated"
    partitions: Sequence[int] = (_ONLY,)
    report_interval_ms: float = REPORT_INTERVAL_S * 1_000
    _told: Outlook | None = None
    _told_ms: float = float("-inf")
    _polled_ms: float = float("-inf")

    @classmethod
    def of(cls, settings: Settings) -> "Gate":
        return cls(
            admission=Admission(AdmissionPolicy(enabled=settings.admission.enabled)),
            limits=AdmissionLimits.of(settings),
        )

    def decide(self, request_id: str, request: Request, deadline: Deadline, *, partition: int = _ONLY) -> Verdict:
        """Decide about a request at its arrival, without waiting for the engine's current step to end."""
        inflight, now_ms = self.admission.inflight, request.arrival_ms
        try:
            check_inflight(self.limits, inflight=inflight, of_connection=0)
        except ProtocolError:
            return "refuse"
        decision = self.admission.decide(
            request_id,
            request.tenant,
            request.bucket,
            deadline,
            partition=partition,
            received_unix_ms=now_ms,
            now_unix_ms=now_ms,
        )
        return "accept" if decision.fallback is None else "fallback"

    def record_first_reply(self, request_id: str, now_ms: float) -> None:
        self.admission.note_first_reply(request_id, now_ms)

    def ended(self, request_id: str, now_ms: float) -> None:
        self.admission.note_first_reply(request_id, now_ms)
        self.admission.release(request_id)

    def report(self, scheduler: Scheduler, now_ms: float) -> None:
        """Receive the worker's report between two steps if it is due or much has changed."""
        if now_ms - self._polled_ms < _POLL_MS:
            return
        self._polled_ms = now_ms
        outlook = scheduler.outlook(now_ms)
        if outlook is None:
            return
        due = now_ms - self._told_ms >= self.report_interval_ms
        if due or self._told is None or outlook.differs_much(self._told):
            self._told, self._told_ms = outlook, now_ms
            self._tell(outlook, now_ms)

    def _tell(self, outlook: Outlook, now_ms: float) -> None:
        report = outlook.report(self.worker_id, dict.fromkeys(BUCKETS, self.partitions), now_ms)
        self.admission.fleet.observe(report, now_ms)
