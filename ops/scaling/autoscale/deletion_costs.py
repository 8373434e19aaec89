"""Mark the pods that are to go when a pool shrinks: `controller.kubernetes.io/pod-deletion-cost` below 0.

A ReplicaSet that is scaled in ends pods of the lowest cost first; a pod without the annotation costs 0. Kubernetes
advises against costs that follow a metric, since each update of a pod loads the API server: so only the pods to go are
marked, by quarters of their slots, once a minute. The API server is reached as any pod reaches it, by its mounted
service account."""

import ssl
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import httpx2

from shared.errors import SettingsError
from shared.process.clock import monotonic_s
from shared.process.tasks import Tasks
from shared.sockets.listening import host_port
from shared.telemetry.availability import Availability
from shared.telemetry.faults import task_failed
from shared.wire.reports import WorkerReport

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_TIMEOUT_S: Final = 5.0
_INTERVAL_S: Final = 60.0
_QUARTERS: Final = 4
_PATCH: Final = "application/merge-patch+json"


def ranked(reports: Mapping[str, WorkerReport], num_to_go: int, marked: Collection[str] = ()) -> dict[str, int]:
    """Return the costs of the pods to go, -4 for an idle worker to -1 for one with most of its slots taken. Of workers
    that are as busy those go that are `marked` already."""
    quarters = {_pod(name, report): _busy_quarters(report) for name, report in reports.items()}
    least_busy = sorted(quarters, key=lambda pod: (quarters[pod], pod not in marked, pod))
    return {pod: quarters[pod] - _QUARTERS for pod in least_busy[: max(0, num_to_go)]}


def _busy_quarters(report: WorkerReport) -> int:
    return min(_QUARTERS - 1, _QUARTERS * (report.running + report.waiting) // max(1, report.slots))


@dataclass(slots=True)
class DeletionCosts:
    """Marks the pods to go, and unmarks those that stay after all. A failure changes nothing; the next minute tries
    again. Marks of an earlier leader stay until this one marks or unmarks their pods."""

    http: httpx2.AsyncClient
    account: Path
    _marked: dict[str, int] = field(default_factory=dict)
    _not_before_s: float = 0.0
    _setting: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _server: Availability = field(default_factory=lambda: Availability("the API server"))

    @classmethod
    def of(cls, environ: Mapping[str, str], account: Path = ACCOUNT) -> Self:
        """Return what reaches this pod's API server. Raises `SettingsError` if this is no pod with an account."""
        host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
        try:
            (account / "token").read_text(encoding="ascii")
            trusted = ssl.create_default_context(cafile=str(account / "ca.crt"))
            namespace = (account / "namespace").read_text(encoding="utf-8").strip()
        except (OSError, ValueError) as error:
            raise SettingsError(
                f"--deletion-cost: {account}: {error}; it works in a pod with a service account"
            ) from None
        if not host:
            raise SettingsError("--deletion-cost: KUBERNETES_SERVICE_HOST is not set; it works in a pod")
        base = f"https://{host_port(host, int(port or 443))}/api/v1/namespaces/{quote(namespace)}/pods/"
        return cls(httpx2.AsyncClient(base_url=base, verify=trusted, timeout=_TIMEOUT_S, trust_env=False), account)

    def loading(self, live: Mapping[str, WorkerReport]) -> None:
        """Return None: which pods are still loading is not known."""

    async def size(self, wanted: int, live: Mapping[str, WorkerReport]) -> None:
        """Start to mark the pods to go, once a minute; a decision does not wait for it."""
        now_s = monotonic_s()
        if now_s >= self._not_before_s and not len(self._setting) and (wanted < len(live) or self._marked):
            self._not_before_s = now_s + _INTERVAL_S
            self._setting.start(self.mark(wanted, live))

    async def mark(self, wanted: int, live: Mapping[str, WorkerReport]) -> None:
        """Set the cost of the pods beyond `wanted`, and take back that of pods that are no longer among them."""
        costs = ranked(live, len(live) - wanted, self._marked)
        there = {_pod(*worker) for worker in live.items()}
        self._marked = {pod: cost for pod, cost in self._marked.items() if pod in there}
        changes: dict[str, int | None] = dict.fromkeys(self._marked.keys() - costs.keys())
        changes |= {pod: cost for pod, cost in costs.items() if self._marked.get(pod) != cost}
        try:
            for pod, cost in changes.items():
                await self._patch(pod, cost)
                self._marked.pop(pod, None)
                if cost is not None:
                    self._marked[pod] = cost
        except (OSError, ValueError, httpx2.HTTPError) as error:
            self._server.mark_down(f"{type(error).__name__}: {error}", action="pods are ended in any order")
        else:
            self._server.mark_up()

    async def _patch(self, pod: str, cost: int | None) -> None:
        """Set a pod's cost; None removes it."""
        token = (self.account / "token").read_text(encoding="ascii").strip()  # it is renewed every hour
        answer = await self.http.patch(
            quote(pod),
            json={"metadata": {"annotations": {_COST: None if cost is None else str(cost)}}},
            headers={"Authorization": f"Bearer {token}", "Content-Type": _PATCH},
        )
        if answer.status_code != httpx2.codes.NOT_FOUND:  # a worker outside, or a pod that is gone
            answer.raise_for_status()

    async def close(self) -> None:
        await self._setting.cancel()
        await self.http.aclose()


def _pod(worker_id: str, report: WorkerReport) -> str:
    """Return a worker's pod: the host that it reports, or of older releases the one in its id, `w-PID-HOST`."""
    return report.host or worker_id.split("-", 2)[-1]
