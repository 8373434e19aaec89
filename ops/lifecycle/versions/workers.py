"""The live workers of a lane, by their reports, and which of them have loaded a version. Pure."""

from dataclasses import dataclass, field
from typing import Final

from shared.wire.fields import Revision
from shared.wire.lanes import Lane
from shared.wire.messages import WorkerReport

SILENT_MS: Final = 3_000.0
"""A worker that is silent for longer counts as gone, as it does for gateways."""


@dataclass(slots=True)
class LaneWorkers:
    """Watches a lane's workers load a version."""

    lane: Lane
    revision: Revision
    _reports: dict[str, tuple[WorkerReport, float]] = field(default_factory=dict)

    def observe(self, worker_id: str, report: WorkerReport | None, now_unix_ms: float) -> None:
        """Take in a worker's report, or that it leaves."""
        if report is None:
            self._reports.pop(worker_id, None)
        else:
            self._reports[worker_id] = report, now_unix_ms

    def refusals(self, epoch: int) -> dict[str, str]:
        """Return the workers of the lane that have refused to load the version since that move, and why."""
        found = {
            worker_id: report.refused[self.revision]
            for worker_id, (report, _) in sorted(self._reports.items())
            if report.lane == self.lane and self.revision in report.refused
        }
        return {worker_id: refusal.reason for worker_id, refusal in found.items() if refusal.epoch >= epoch}

    def loaded(self, now_unix_ms: float) -> dict[str, bool]:
        """Return the live workers of the lane, and whether each has loaded the version."""
        return {
            worker_id: self.revision in report.revisions
            for worker_id, (report, seen_unix_ms) in sorted(self._reports.items())
            if report.lane == self.lane and now_unix_ms - seen_unix_ms <= SILENT_MS
        }
