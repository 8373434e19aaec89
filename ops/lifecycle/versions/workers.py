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
    """The workers of a lane, and what each last reported."""

    lane: Lane
    _reports: dict[str, tuple[WorkerReport, float]] = field(default_factory=dict)

    def observe(self, worker_id: str, report: WorkerReport | None, now_unix_ms: float) -> None:
        """Take in a worker's report, or that it leaves. Of other lanes nothing is kept."""
        if report is None or report.lane != self.lane:
            self._reports.pop(worker_id, None)
        else:
            self._reports[worker_id] = report, now_unix_ms

    @property
    def heard(self) -> bool:
        """Return whether a worker was heard that has not left since, live or silent."""
        return bool(self._reports)

    def refusals(self, revision: Revision, epoch: int) -> dict[str, str]:
        """Return the workers that have refused to load a version since that move, and why."""
        return {
            worker_id: refusal.reason
            for worker_id, (report, _) in sorted(self._reports.items())
            if (refusal := report.refused.get(revision)) is not None and refusal.epoch >= epoch
        }

    def live(self, now_unix_ms: float) -> dict[str, WorkerReport]:
        """Return the reports of the live workers, by their ids."""
        return {
            worker_id: report
            for worker_id, (report, seen_unix_ms) in sorted(self._reports.items())
            if now_unix_ms - seen_unix_ms <= SILENT_MS
        }

    def loaded(self, revision: Revision, now_unix_ms: float) -> dict[str, bool]:
        """Return the live workers, and whether each has loaded a version."""
        return {name: revision in report.revisions for name, report in self.live(now_unix_ms).items()}
