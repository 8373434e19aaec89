"""An invalid Kubernetes manifest is named before it is applied."""

from typing import Any

import pytest

from tests.kubernetes.manifests import faults

LABELS = {"app": "worker"}


def deployment(*, variables: dict[str, str], probe: str = "metrics") -> dict[str, Any]:
    container = {
        "args": ["gateway"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "ports": [{"name": "metrics"}],
        "readinessProbe": {"httpGet": {"port": probe}},
    }
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": [container], "enableServiceLinks": False}}
    spec = {"replicas": 2, "selector": {"matchLabels": LABELS}, "template": template}
    return {"kind": "Deployment", "metadata": {"name": "worker"}, "spec": spec}


BUDGET = {
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "worker"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": LABELS}},
}


SCALER = {
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "worker"},
    "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "worker"}},
}


def service(selector: dict[str, str]) -> dict[str, Any]:
    return {"kind": "Service", "metadata": {"name": "chat"}, "spec": {"selector": selector}}


def test_a_valid_manifest_has_no_fault() -> None:
    good = deployment(variables={"REPLYLINE_WORKER__LANE": "canary"})
    assert list(faults([BUDGET, good, service(LABELS)])) == []


@pytest.mark.parametrize(
    ("objects", "fault"),
    [
        ([BUDGET, deployment(variables={"REPLYLINE_WORKER__LANE": "canari"})], "canari"),
        ([BUDGET, deployment(variables={"REPLYLINE_WORKER__LANES": "canary"})], "no such setting"),
        ([deployment(variables={})], "None of 2 pods may be evicted at once"),
        ([BUDGET, deployment(variables={}, probe="chat")], "asks port chat"),
        ([BUDGET, deployment(variables={}), service({"app": "gateway"})], "no pod has"),
        ([BUDGET, deployment(variables={}), SCALER], "Deployment worker: 2 size it"),
    ],
)
def test_each_fault_in_a_manifest_is_named(objects: list[dict[str, Any]], fault: str) -> None:
    assert fault in "\n".join(faults(objects))
