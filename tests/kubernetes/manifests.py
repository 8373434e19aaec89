"""Check rendered manifests, for `make k8s-check`: with FILE --core FILE --custom FILE.

Each container's variables are settings that load, every port and file of a secret that is named is there, each selector
finds its pods, one object sizes each pool, at most a third of it may be away, and no name is too long. What is no kind
of Kubernetes itself goes into the file `--custom`, the rest into `--core`.
"""

import argparse
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final
from unittest import mock

import yaml
from typer.testing import CliRunner

from ops.cli import app
from shared.errors import SettingsError
from shared.settings import load_settings

_NOT_CORE: Final = ("monitoring.coreos.com/", "keda.sh/")
PODS: Final = ("Deployment", "StatefulSet", "Job")
_SCALERS: Final = ("HorizontalPodAutoscaler", "ScaledObject")
_SECRETS: Final = "/secrets/"
# scheme://user@host:port of a URL, or host:port, in a list.
_SERVERS: Final = re.compile(
    r"(?:^|,\s*)(?:([a-z+]+)://)?(?:[^@/,]*@)?(\[[^]]*\]|[A-Za-z0-9.-]*[A-Za-z][A-Za-z0-9.-]*|[\d.]+)(?::(\d+))?(?=[/?#,]|$)"
)
_PORTS: Final = {"http": 80, "https": 443, "ws": 80, "wss": 443, "redis": 6379, "rediss": 6379, "redis+sentinel": 26379}
_NO_SERVERS: Final = ("_ORIGINS", "_ISSUER", "_AUDIENCE")
_TO_END_S: Final = 5  # Kafka's clients close
_MOST_NAME: Final = 43  # a pod's has 17 characters more, and a worker's id 4 more than that: 64
_MOST_LABEL: Final = 63
DOORS: Final = yaml.safe_load(
    (Path(__file__).parents[2] / "ops" / "k8s" / "replyline" / "files" / "doors.yaml").read_text()
)
Object = dict[str, Any]


def faults(objects: list[Object]) -> Iterator[str]:
    """Return a line for each thing that is wrong."""
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] in PODS]
    for each in objects:
        name = f"{each['kind']} {each['metadata']['name']}"
        if each["kind"] == "Ingress":
            yield from (f"{name}: {fault}" for fault in _of_ingress(each, objects))
        for selector in _selectors(each):
            if not any(selector.items() <= found.items() for found in labels):
                yield f"{name}: no pod has {selector}"
        if each["kind"] in PODS:
            pod = each["spec"]["template"]["spec"]
            if pod.get("enableServiceLinks", True):
                yield f"{name}: enableServiceLinks is not false: a Service's variables could be taken for settings"
            grace_s = pod.get("terminationGracePeriodSeconds", 30)
            allowed = _egress_ports(each["spec"]["template"]["metadata"]["labels"], objects)
            for container in pod["containers"]:
                variables = _variables(container)
                given = variables | {each.partition("=")[0]: each.partition("=")[2] for each in container["args"]}
                found = [*_of_container(container, variables, grace_s), *_of_servers(given, allowed)]
                yield from (f"{name}: {fault}" for fault in found)
        yield from (f"{name}: {fault}" for fault in [*_of_names(each), *_of_absences(each, objects)])
    yield from _of_sizes(objects)


def _of_names(each: Object) -> Iterator[str]:
    """Yield a line if Kubernetes would refuse the name, or cut that of a pod."""
    name = each["metadata"]["name"]
    limit = _MOST_NAME if each["kind"] in PODS else _MOST_LABEL
    if len(name) > limit:
        yield f"{len(name)} characters, and {limit} are allowed"
    if each["kind"] == "Service" and not re.fullmatch(r"[a-z]([a-z0-9-]*[a-z0-9])?", name):
        yield "no name of a Service"


def _of_absences(each: Object, objects: list[Object]) -> Iterator[str]:
    """Yield a line if more than a third of a pool of a fixed size, and more than one pod, may be away."""
    spec = each["spec"] if each["kind"] in {"Deployment", "StatefulSet"} else {}
    if "replicas" not in spec:
        return
    most = max(1, spec["replicas"] // 3)
    budgets = {
        budget["metadata"]["name"]: budget["spec"]["maxUnavailable"]
        for budget in objects
        if budget["kind"] == "PodDisruptionBudget"
    }
    evictable = budgets.get(each["metadata"]["name"])
    if not isinstance(evictable, int) or not 1 <= evictable <= most:
        yield f"{evictable} of {spec['replicas']} pods may be evicted at once"
    update = spec.get("strategy", spec.get("updateStrategy", {})).get("rollingUpdate", {})
    away = update.get("maxUnavailable", 1)
    if not isinstance(away, int) or not (0 if update.get("maxSurge") else 1) <= away <= most:
        yield f"{away} of {spec['replicas']} pods are replaced at once"


def _of_ingress(each: Object, objects: list[Object]) -> Iterator[str]:
    """Yield a line for a port that no Service has, and for each door's path that is not routed."""
    ports = {
        (service["metadata"]["name"], port["name"])
        for service in objects
        if service["kind"] == "Service"
        for port in service["spec"]["ports"]
    }
    routed: dict[str, set[str]] = {}
    for rule in each["spec"]["rules"]:
        for path in rule["http"]["paths"]:
            service = path["backend"]["service"]
            routed.setdefault(service["port"]["name"], set()).add(path["path"])
            if (service["name"], service["port"]["name"]) not in ports:
                yield f"{path['path']}: no Service {service['name']} has a port {service['port']['name']}"
    wanted = {"grpc": DOORS["grpc"]} if "grpc" in routed else {"http": DOORS["http"], "chat": ["/"]}
    if routed != {port: set(paths) for port, paths in wanted.items()}:
        yield f"it routes {routed}, and the doors are {wanted}"


def _of_sizes(objects: list[Object]) -> Iterator[str]:
    """Yield a line for each workload that none or two size, and for each scaler whose workload is not there."""
    targets = [each["spec"]["scaleTargetRef"] for each in objects if each["kind"] in _SCALERS]
    asked = [(target["kind"], target["name"]) for target in targets]
    sized = {
        (each["kind"], each["metadata"]["name"]): "replicas" in each["spec"]
        for each in objects
        if each["kind"] in {"Deployment", "StatefulSet"}
    }
    for workload in {*sized, *asked}:
        count = asked.count(workload) + sized.get(workload, 2)
        if count != 1:
            yield f"{' '.join(workload)}: {count} size it"


def _selectors(each: Object) -> Iterator[dict[str, str]]:
    spec = each.get("spec", {})
    match each["kind"]:
        case "Service":
            yield spec["selector"]
        case "PodDisruptionBudget" | "Deployment" | "StatefulSet":
            yield spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]


def _variables(container: Object) -> dict[str, str]:
    """Return them as the process gets them: Kubernetes reads $$ as $."""
    return {each["name"]: str(each.get("value", "0")).replace("$$", "$") for each in container.get("env", ())}


def _egress_ports(labels: dict[str, str], objects: list[Object]) -> set[int] | None:
    """Return the TCP ports that the policies let these pods reach, or None if none restricts them."""
    policies = [
        each["spec"]
        for each in objects
        if each["kind"] == "NetworkPolicy"
        and "Egress" in each["spec"]["policyTypes"]
        and each["spec"]["podSelector"]["matchLabels"].items() <= labels.items()
    ]
    rules = [rule for policy in policies for rule in policy.get("egress", ())]
    return {port["port"] for rule in rules for port in rule["ports"]} if policies else None


def _of_servers(variables: dict[str, str], allowed: set[int] | None) -> Iterator[str]:
    """Yield a line for each server in these variables whose port no policy lets through."""
    for name, value in variables.items():
        servers = re.findall(_SERVERS, value) if not name.endswith(_NO_SERVERS) else []
        scheme = ""
        for own, _, port in servers:
            scheme = own or scheme
            wanted = int(port or _PORTS.get(scheme, 0))
            if allowed is not None and wanted and wanted not in allowed:
                yield f"{name}={value}: no NetworkPolicy lets port {wanted} through"


def _of_container(container: Object, variables: dict[str, str], grace_s: int) -> Iterator[str]:
    files = {name: value for name, value in variables.items() if value.startswith(_SECRETS)}
    folders = tuple(f"{mount['mountPath']}/" for mount in container.get("volumeMounts", ()))
    yield from (
        f"{name}={file}: no volume is mounted there" for name, file in files.items() if not file.startswith(folders)
    )
    ours = {name: value for name, value in variables.items() if name not in files}
    with NamedTemporaryFile("w") as secret, mock.patch.dict(os.environ, ours, clear=True):
        secret.write("s" * 64)
        secret.flush()
        os.environ |= {name: secret.name for name in files if name.endswith("_FILE")}
        try:
            settings = load_settings()
        except SettingsError as error:
            yield str(error)
            return
    if CliRunner().invoke(app, [*container["args"], "--help"]).exit_code:
        yield f"replyline takes no such command or option: {' '.join(container['args'])}"
    if container["args"] == ["worker"]:
        needed = settings.worker.drain_s + settings.promise.max_deadline_ms / 1_000 + _TO_END_S
        if grace_s < needed:
            yield f"terminationGracePeriodSeconds {grace_s} is below {needed:g}: drain limit and longest deadline"
    ports = {port["name"] for port in container.get("ports", ())}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container.get(probe, {}).get("httpGet", {}).get("port")
        if asked is not None and asked not in ports:
            yield f"{probe} asks port {asked}, which no port is named"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--core", type=Path, required=True)
    parser.add_argument("--custom", type=Path, required=True)
    asked = parser.parse_args()
    objects = [each for each in yaml.safe_load_all(asked.file.read_text()) if each]
    for file, custom in ((asked.core, False), (asked.custom, True)):
        chosen = [each for each in objects if each["apiVersion"].startswith(_NOT_CORE) == custom]
        file.write_text(yaml.safe_dump_all(chosen))
    found = list(faults(objects))
    for fault in found:
        sys.stderr.write(f"{asked.file.stem}: {fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
