"""Tell Kubernetes which pods are cheapest to end: `controller.kubernetes.io/pod-deletion-cost` by what is in flight.

A ReplicaSet that is scaled in ends pods of the lowest cost first. The API server is reached as any pod reaches it, by
its mounted service account."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self
from urllib.parse import quote

import httpx2

from shared.errors import SettingsError
from shared.process.tasks import Tasks
from shared.sockets.listening import host_port
from shared.telemetry.availability import Availability
from shared.telemetry.faults import task_failed
from shared.wire.messages import WorkerReport

ACCOUNT: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")
_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
_TIMEOUT_S: Final = 5.0
_PATCH: Final = "application/merge-patch+json"


@dataclass(slots=True)
class DeletionCosts:
    """Set while more workers are there than are wanted. A failure changes nothing, and is tried again."""

    http: httpx2.AsyncClient
    account: Path
    _sent: dict[str, int] = field(default_factory=dict)
    _setting: Tasks = field(default_factory=lambda: Tasks(task_failed))
    _server: Availability = field(default_factory=lambda: Availability("the API server"))

    @classmethod
    def of(cls, environ: Mapping[str, str], account: Path = ACCOUNT) -> Self:
        """Return what reaches this pod's API server. Raises `SettingsError` where this is no pod with an account."""
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
        """Return None: nobody knows which pods are still loading."""

    async def size(self, wanted: int, live: Mapping[str, WorkerReport]) -> None:
        """Set the costs where pods are to be ended; a decision does not wait for it."""
        if wanted < len(live) and not len(self._setting):
            self._setting.start(self.set(live))

    async def set(self, reports: Mapping[str, WorkerReport]) -> None:
        """Set the cost of each pod to the requests that its worker has."""
        costs = {_pod(name): report.running + report.waiting for name, report in reports.items()}
        self._sent = {pod: cost for pod, cost in self._sent.items() if pod in costs}
        try:
            for pod, cost in costs.items():
                if self._sent.get(pod) != cost:
                    await self._patch(pod, cost)
                    self._sent[pod] = cost
        except (OSError, ValueError, httpx2.HTTPError) as error:
            self._server.down(f"{type(error).__name__}: {error}", action="pods are ended in any order")
        else:
            self._server.up()

    async def _patch(self, pod: str, cost: int) -> None:
        token = (self.account / "token").read_text(encoding="ascii").strip()  # it is renewed every hour
        answer = await self.http.patch(
            quote(pod),
            json={"metadata": {"annotations": {_COST: str(cost)}}},
            headers={"Authorization": f"Bearer {token}", "Content-Type": _PATCH},
        )
        if answer.status_code != httpx2.codes.NOT_FOUND:  # a worker outside, or a pod that is gone
            answer.raise_for_status()

    async def close(self) -> None:
        await self._setting.cancel()
        await self.http.aclose()


def _pod(worker_id: str) -> str:
    """Return the host's name in a worker's id, `w-PID-HOST`: a pod's is its own."""
    return worker_id.split("-", 2)[-1]
