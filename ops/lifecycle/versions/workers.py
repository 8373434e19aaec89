"""The live workers of a lane, by their reports, and which of them have loaded a version. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from shared.wire.fields import Revision
from shared.wire.lanes import CHAMPION, Lane
from shared.wire.reports import WorkerReport

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

    def slots(self, now_unix_ms: float) -> int:
        """Return the slots of the live workers."""
        return sum(report.slots for report in self.live(now_unix_ms).values())

    def requests(self, now_unix_ms: float) -> int:
        """Return the requests that the live workers have, running and waiting."""
        return sum(report.running + report.waiting for report in self.live(now_unix_ms).values())

    def refusals(self, revision: Revision, epoch: int = 0) -> dict[str, str]:
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


def lanes_of_a_rollout() -> dict[Lane, LaneWorkers]:
    """Return the three lanes that a rollout compares, without workers."""
    lanes: tuple[Lane, ...] = (CHAMPION, "canary", "control")
    return {lane: LaneWorkers(lane) for lane in lanes}


def lacking(lanes: Mapping[Lane, LaneWorkers], wanted: Mapping[Lane, Revision], now_unix_ms: float) -> list[str]:
    """Return why some answers of a lane would not be by its version: a lane without a live worker, or a worker that has
    not loaded the version or refuses it. Empty if each live worker reports it."""
    reasons = []
    for lane, revision in wanted.items():
        loaded, refusals = lanes[lane].loaded(revision, now_unix_ms), lanes[lane].refusals(revision)
        if not loaded:
            start = f"REPLYLINE_WORKER__LANE={lane} replyline worker"
            reasons.append(f"no worker of lane {lane} reports; start one: {start}")
        reasons += refused(lanes[lane], revision, now_unix_ms)
        for worker, has in loaded.items():
            if not has and worker not in refusals:
                reasons.append(f"worker {worker} of lane {lane} has not loaded {revision}")
    return reasons


def refused(workers: LaneWorkers, revision: Revision, now_unix_ms: float) -> list[str]:
    """Return a line for each live worker of a lane that refuses to load a version, with its reason."""
    live = workers.live(now_unix_ms)
    return [
        f"worker {worker} of lane {workers.lane} refuses {revision}: {reason}"
        for worker, reason in workers.refusals(revision).items()
        if worker in live
    ]
