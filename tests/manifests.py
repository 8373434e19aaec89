"""Check rendered manifests: `python -m tests.manifests FILE --core FILE`, for `make k8s-check`.

Each container's variables are settings that load, every ConfigMap and port that is named is there, and each selector
finds its pods. What is no kind of Kubernetes itself is left out of the file `--core`.
"""

import argparse
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from unittest import mock

import yaml

from shared.errors import SettingsError
from shared.settings import load_settings

_NOT_CORE: Final = ("monitoring.coreos.com/", "keda.sh/")
_PODS: Final = ("Deployment", "StatefulSet", "Job")
Object = dict[str, Any]


def faults(objects: list[Object]) -> Iterator[str]:
    """Return a line for each thing that is wrong."""
    maps = {each["metadata"]["name"]: each.get("data", {}) for each in objects if each["kind"] == "ConfigMap"}
    labels = [each["spec"]["template"]["metadata"]["labels"] for each in objects if each["kind"] in _PODS]
    for each in objects:
        name = f"{each['kind']} {each['metadata']['name']}"
        for selector in _selectors(each):
            if not any(selector.items() <= found.items() for found in labels):
                yield f"{name}: no pod has {selector}"
        if each["kind"] in _PODS:
            for container in each["spec"]["template"]["spec"]["containers"]:
                yield from (f"{name}: {fault}" for fault in _of_container(container, maps))


def _selectors(each: Object) -> Iterator[dict[str, str]]:
    spec = each.get("spec", {})
    match each["kind"]:
        case "Service":
            yield spec["selector"]
        case "PodDisruptionBudget" | "Deployment" | "StatefulSet":
            yield spec["selector"]["matchLabels"]
        case "NetworkPolicy":
            yield spec["podSelector"]["matchLabels"]


def _of_container(container: Object, maps: dict[str, dict[str, str]]) -> Iterator[str]:
    variables: dict[str, str] = {}
    for source in container.get("envFrom", ()):
        named = source["configMapRef"]["name"]
        if named not in maps:
            yield f"no ConfigMap {named}"
        variables |= maps.get(named, {})
    variables |= {each["name"]: str(each.get("value", "0")) for each in container.get("env", ())}
    ours = {name: value for name, value in variables.items() if not name.endswith("_FILE")}
    with mock.patch.dict(os.environ, ours, clear=True):
        try:
            load_settings()
        except SettingsError as error:
            yield str(error)
    ports = {port["name"] for port in container.get("ports", ())}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        asked = container.get(probe, {}).get("httpGet", {}).get("port")
        if asked is not None and asked not in ports:
            yield f"{probe} asks port {asked}, which no port is named"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--core", type=Path, required=True)
    asked = parser.parse_args()
    objects = [each for each in yaml.safe_load_all(asked.file.read_text()) if each]
    core = [each for each in objects if not each["apiVersion"].startswith(_NOT_CORE)]
    asked.core.write_text(yaml.safe_dump_all(core))
    found = list(faults(objects))
    for fault in found:
        sys.stderr.write(f"{asked.file.stem}: {fault}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
