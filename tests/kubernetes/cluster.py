"""Try the chart on a real API server with the real HPA controller, for `make k8s-prove`.

No kubelet runs: pods are made, and stay pending. The external metric is this script's own. It prints a line for each
claim, and ends with 1 where one does not hold.
"""

import json
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import httpx2
import yaml

ROOT: Final = Path(__file__).parents[2]
KUBE: Final = ROOT / ".cache" / "kube"
CHART: Final = ROOT / "ops" / "k8s"
ETCD, API, METRIC, MANAGER = 12_379, 16_443, 16_444, 16_445
SERVER: Final = f"https://127.0.0.1:{API}"
IN_NAMESPACE: Final = {
    "ConfigMap": "api/v1", "Secret": "api/v1", "Service": "api/v1", "ServiceAccount": "api/v1", "Job": "apis/batch/v1",
    "Deployment": "apis/apps/v1", "StatefulSet": "apis/apps/v1", "PodDisruptionBudget": "apis/policy/v1",
    "Role": "apis/rbac.authorization.k8s.io/v1", "RoleBinding": "apis/rbac.authorization.k8s.io/v1",
    "NetworkPolicy": "apis/networking.k8s.io/v1", "Ingress": "apis/networking.k8s.io/v1",
    "HorizontalPodAutoscaler": "apis/autoscaling/v2",
}  # fmt: skip
DEPLOYMENT: Final = "/apis/apps/v1/namespaces/default/deployments/chat-worker-main"
HPA: Final = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers/chat-worker-main"
PODS: Final = "/api/v1/namespaces/default/pods"
MERGE: Final = {"Content-Type": "application/merge-patch+json"}


class Adapter(BaseHTTPRequestHandler):
    """An adapter of external metrics with one number; None: it cannot say."""

    wanted: int | None = 2

    def do_GET(self) -> None:
        group = "external.metrics.k8s.io/v1beta1"
        items = [{"metricName": "replyline_wanted_workers", "timestamp": _now(), "value": str(Adapter.wanted)}]
        resources = [{"name": "replyline_wanted_workers", "namespaced": True, "kind": "ExternalMetricValueList"}]
        found: dict[str, Any] = {"kind": "ExternalMetricValueList", "apiVersion": group, "metadata": {}, "items": items}
        if self.path.partition("?")[0].rstrip("/").endswith(group):
            listed = [{**each, "singularName": "", "verbs": ["get"]} for each in resources]
            found = {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group, "resources": listed}
        elif Adapter.wanted is None:
            found = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 500}
        body = json.dumps(found).encode()
        self.send_response(found.get("code", 200))
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing of each request."""


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@contextmanager
def running(folder: Path, *command: str) -> Iterator[None]:
    with (folder / f"{Path(command[0]).name}.log").open("w") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=subprocess.STDOUT)
        try:
            yield
        finally:
            process.terminate()
            process.wait(60)


def within(limit_s: float, holds: Callable[[], bool]) -> bool:
    """Return whether it holds before the limit; an answer that cannot be had is a no."""
    until = time.monotonic() + limit_s
    while time.monotonic() < until:
        try:
            if holds():
                return True
        except (httpx2.HTTPError, KeyError, ValueError):
            pass
        time.sleep(0.2)
    return False


def rendered(values: Path) -> list[dict[str, Any]]:
    command = ("template", "chat", str(CHART / "replyline"), "--values", str(values), "--kube-version", "1.37.2")
    made = subprocess.run([ROOT / ".cache/k8s/helm", *command], capture_output=True, text=True, check=True)
    return [each for each in yaml.safe_load_all(made.stdout) if each and each["kind"] in IN_NAMESPACE]


def post(api: httpx2.Client, each: dict[str, Any], query: str = "") -> str:
    """Return what the API server says against an object; empty where it takes it."""
    plural = re.sub("ys$", "ies", re.sub("sss?$", "sses", f"{each['kind'].lower()}s"))
    answer = api.post(
        f"/{IN_NAMESPACE[each['kind']]}/namespaces/default/{plural}?fieldValidation=Strict{query}", json=each
    )
    return "" if answer.is_success else f"{each['kind']} {each['metadata']['name']}: {answer.text}"


def claims(api: httpx2.Client) -> Iterator[tuple[str, bool]]:
    """Yield each claim and whether it holds."""
    for values in sorted((CHART / "examples").glob("*.yaml")):
        said = [said for each in rendered(values) if (said := post(api, each, "&dryRun=All"))]
        yield f"{values.stem}: taken by the API server" + "".join(f"\n  {line}" for line in said), not said
    size: Callable[[], int] = lambda: api.get(DEPLOYMENT).json()["spec"]["replicas"]  # noqa: E731
    for each in rendered(CHART / "examples" / "hpa.yaml"):
        post(api, each)
    for wanted in (2, 7, 12):
        Adapter.wanted = wanted
        yield f"{wanted} are wanted, and the HPA sets as many", within(60, lambda: size() == wanted)  # noqa: B023
    Adapter.wanted = None
    yield "no number leaves the size", not within(10, lambda: size() != 12)
    yield from _ends_the_idle_first(api, size)
    fast = {"scaleUp": {"policies": [{"type": "Pods", "value": 40, "periodSeconds": 5}]}}
    api.patch(HPA, json={"spec": {"maxReplicas": 40, "behavior": fast}}, headers=MERGE)
    for wanted in (24, 25):
        Adapter.wanted = wanted
        yield f"{wanted} are wanted of {size()}, and set without a tolerance", within(30, lambda: size() == wanted)  # noqa: B023
    api.patch(HPA, json={"spec": {"behavior": {"scaleUp": {"tolerance": None}}}}, headers=MERGE)
    time.sleep(2)
    Adapter.wanted = 27
    yield "27 of 25 without that tolerance: ignored", not within(10, lambda: size() != 25)


def _ends_the_idle_first(api: httpx2.Client, size: Callable[[], int]) -> Iterator[tuple[str, bool]]:
    """Mark the pods to go, as `DeletionCosts` does, with the chart's own role; and shrink."""
    token = api.post(
        "/api/v1/namespaces/default/serviceaccounts/chat-autoscale/token",
        json={"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}},
    ).json()["status"]["token"]
    own = httpx2.Client(base_url=SERVER, verify=False, headers={"Authorization": f"Bearer {token}"})
    workers = f"{PODS}?labelSelector=app.kubernetes.io/component=worker-main"
    names = [pod["metadata"]["name"] for pod in api.get(workers).json()["items"]]
    busy = set(names[:6])
    for name in names[6:]:
        cost = {"controller.kubernetes.io/pod-deletion-cost": "-4"}
        own.patch(f"{PODS}/{name}", json={"metadata": {"annotations": cost}}, headers=MERGE).raise_for_status()
    yield "the autoscaler's account reads nothing", own.get(PODS).status_code == httpx2.codes.FORBIDDEN
    soon = {"stabilizationWindowSeconds": 5, "policies": [{"type": "Pods", "value": 1, "periodSeconds": 2}]}
    api.patch(HPA, json={"spec": {"behavior": {"scaleDown": soon}}}, headers=MERGE)
    Adapter.wanted = len(busy)
    shrunk = within(120, lambda: size() == len(busy))
    left = lambda: {  # noqa: E731
        pod["metadata"]["name"]
        for pod in api.get(workers).json()["items"]
        if "deletionTimestamp" not in pod["metadata"]
    }
    yield "a shrink ends the idle pods, and keeps the busy ones", shrunk and within(20, lambda: left() == busy)


def main() -> int:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        _make_keys(folder)
        _serve_metric(folder)
        api = httpx2.Client(base_url=SERVER, verify=False, headers={"Authorization": "Bearer admin"}, timeout=20)
        for command in (_etcd(), _api_server()):
            stack.enter_context(running(folder, *command))
        if not within(180, lambda: api.get("/readyz").is_success):
            sys.stderr.write((folder / "kube-apiserver.log").read_text()[-2_000:])
            return 1
        stack.enter_context(running(folder, *_controllers()))
        _register(api)
        failed = 0
        for claim, holds in claims(api):
            sys.stdout.write(f"{'holds' if holds else 'FAILS'}: {claim}\n")
            sys.stdout.flush()
            failed += not holds
    return 1 if failed else 0


def _serve_metric(folder: Path) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", METRIC), Adapter)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(folder / "tls.crt", folder / "tls.key")
    server.socket = tls.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


def _etcd() -> tuple[str, ...]:
    clients, peers = (f"http://127.0.0.1:{port}" for port in (ETCD, ETCD + 1))
    urls = ("--listen-client-urls", clients, "--advertise-client-urls", clients, "--listen-peer-urls", peers)
    return "etcd", "--data-dir", "etcd", *urls


def _api_server() -> tuple[str, ...]:
    keys = ("--service-account-key-file=sa.key", "--service-account-signing-key-file=sa.key")
    return (
        str(KUBE / "kube-apiserver"),
        f"--etcd-servers=http://127.0.0.1:{ETCD}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={API}",
        "--cert-dir=certs",
        "--service-account-issuer=https://kubernetes.default.svc",
        *keys,
        "--token-auth-file=tokens.csv",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.96.0.0/24",
        "--disable-admission-plugins=ServiceAccount",
        "--endpoint-reconciler-type=none",
    )


def _controllers() -> tuple[str, ...]:
    return (
        str(KUBE / "kube-controller-manager"),
        "--kubeconfig=kube.yaml",
        "--leader-elect=false",
        "--controllers=deployment-controller,replicaset-controller,horizontal-pod-autoscaler-controller",
        "--horizontal-pod-autoscaler-sync-period=1s",
        "--bind-address=127.0.0.1",
        f"--secure-port={MANAGER}",
    )


def _make_keys(folder: Path) -> None:
    subject = ("-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
    for command in (
        ("genrsa", "-out", "sa.key", "2048"),
        ("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "tls.key", "-out", "tls.crt", *subject),
    ):
        subprocess.run(["openssl", *command], cwd=folder, check=True, capture_output=True)
    (folder / "tokens.csv").write_text('admin,admin,admin,"system:masters"\n')
    cluster = {"name": "c", "cluster": {"server": SERVER, "insecure-skip-tls-verify": True}}
    user, context = {"name": "u", "user": {"token": "admin"}}, {"name": "x", "context": {"cluster": "c", "user": "u"}}
    config = {"clusters": [cluster], "users": [user], "contexts": [context], "current-context": "x"}
    (folder / "kube.yaml").write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", **config}))


def _register(api: httpx2.Client) -> None:
    """Have the API server ask the adapter for external metrics."""
    within(30, lambda: api.get("/api/v1/namespaces/default").is_success)
    spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": METRIC}]}
    post(api, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "adapter"}, "spec": spec})
    service = {
        "group": "external.metrics.k8s.io", "version": "v1beta1", "groupPriorityMinimum": 100, "versionPriority": 100,
        "insecureSkipTLSVerify": True, "service": {"name": "adapter", "namespace": "default", "port": METRIC},
    }  # fmt: skip
    api.post(
        "/apis/apiregistration.k8s.io/v1/apiservices",
        json={"kind": "APIService", "metadata": {"name": "v1beta1.external.metrics.k8s.io"}, "spec": service},
    ).raise_for_status()


if __name__ == "__main__":
    sys.exit(main())
