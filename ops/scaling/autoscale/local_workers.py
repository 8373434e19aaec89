"""Start and end workers on this machine, as many as are wanted of a pool."""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from signal import SIGTERM
from socket import gethostname
from typing import Final

from ops.scaling.autoscale.evidence import Pool
from ops.stack.processes import Child, free_port
from shared.process.clock import monotonic_s
from shared.process.modules import module_command
from shared.settings import PREFIX
from shared.telemetry.logs import get_logger
from shared.wire.reports import WorkerReport
from workers.serving.capacity import worker_prefix

log = get_logger()

_PAUSE_S: Final = 5.0  # after a worker that ended by itself


def start_worker(pool: Pool) -> Child:
    """Start `replyline worker` with the settings of this process, except for the pool and a free port."""
    env = {
        f"{PREFIX}WORKER__LANE": pool.lane,
        f"{PREFIX}WORKER__POOL": pool.name,
        f"{PREFIX}WORKER__BUCKETS": ",".join(pool.buckets),
        f"{PREFIX}WORKER__METRICS_PORT": str(free_port()),
        f"{PREFIX}WORKER__INSTANCE_ID": "",
    }
    return Child.start(module_command("workers"), env=env, share_output=True)


@dataclass(slots=True)
class LocalWorkers:
    """The workers that this process has started; those that leave are given `drain_s` to finish what they have begun:
    SIGTERM drains a worker."""

    start: Callable[[], Child]
    drain_s: float
    _serving: list[Child] = field(default_factory=list)
    _leaving: list[Child] = field(default_factory=list)
    _not_before_s: float = 0.0

    async def size(self, wanted: int, reports: Mapping[str, WorkerReport]) -> None:
        """Start what is missing of the pool, or end what is too many, the least busy first. `reports` are of all live
        workers, also of those that this process has not started."""
        self._reap()
        own = [_report(child, reports) for child in (*self._serving, *self._leaving)]
        others = len(reports) - sum(report is not None for report in own)
        missing = max(0, wanted - others) - len(self._serving)
        if missing > 0 and monotonic_s() >= self._not_before_s:
            for _ in range(missing):
                self._serving.append(self.start())
                log.info("worker_started", pid=self._serving[-1].process.pid)
        inflight = {child.process.pid: _inflight(_report(child, reports)) for child in self._serving}
        for child in sorted(self._serving, key=lambda child: inflight[child.process.pid])[: max(0, -missing)]:
            self._serving.remove(child)
            self._leaving.append(child)
            child.signal(SIGTERM)
            log.info("worker_leaves", pid=child.process.pid, inflight=inflight[child.process.pid])

    def loading(self, reports: Mapping[str, WorkerReport]) -> int:
        """Return how many were started and do not report yet."""
        return sum(_report(child, reports) is None for child in self._serving)

    async def close(self) -> None:
        """End all of them: each drains, at the same time."""
        children = [*self._serving, *self._leaving]
        for child in children:
            child.signal(SIGTERM)
        await asyncio.gather(*(asyncio.to_thread(child.stop, timeout_s=self.drain_s) for child in children))

    def _reap(self) -> None:
        self._leaving = [child for child in self._leaving if child.running]
        for child in [child for child in self._serving if not child.running]:
            self._serving.remove(child)
            self._not_before_s = monotonic_s() + _PAUSE_S
            log.warning("worker_ended", status=child.process.returncode, action=f"another in {_PAUSE_S:.0f} s")


def _report(child: Child, reports: Mapping[str, WorkerReport]) -> WorkerReport | None:
    """Return the report of a process of this machine; None if it does not report yet."""
    prefix, host = worker_prefix(child.process.pid), gethostname()
    return next((report for name, report in reports.items() if name.startswith(prefix) and report.host == host), None)


def _inflight(report: WorkerReport | None) -> int:
    """Return what a worker would have to finish; one that does not report yet has nothing."""
    return 0 if report is None else report.running + report.waiting
