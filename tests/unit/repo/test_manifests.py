"""The check of rendered manifests finds what would break in a cluster."""

from typing import Any

import pytest

from tests.kubernetes.manifests import faults

LABELS = {"app": "chat"}


def manifests(variables: dict[str, str], ports: list[int], **pod: Any) -> list[dict[str, Any]]:
    """Return a pool of workers with these variables, and a policy that lets its pods reach these ports."""
    container = {
        "args": ["worker"],
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "envFrom": [],
    }
    spec = {"enableServiceLinks": False, "terminationGracePeriodSeconds": 1_000, "containers": [container], **pod}
    template = {"metadata": {"labels": LABELS}, "spec": spec}
    selector = {"matchLabels": LABELS}
    policy = {
        "podSelector": selector,
        "policyTypes": ["Egress"],
        "egress": [{"ports": [{"port": port, "protocol": "TCP"}]} for port in ports],
    }
    deployment = {"replicas": 1, "selector": selector, "template": template}
    return [
        {"kind": "Deployment", "metadata": {"name": "pool"}, "spec": deployment},
        {
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "pool"},
            "spec": {"maxUnavailable": 1, "selector": selector},
        },
        {"kind": "NetworkPolicy", "metadata": {"name": "policy"}, "spec": policy},
    ]


@pytest.mark.parametrize(
    ("name", "value", "port"),
    [
        ("KAFKA__BOOTSTRAP_SERVERS", "kafka-0:9092,kafka-1:9093", 9093),
        ("KAFKA__BOOTSTRAP_SERVERS", "[fd00::1]:9094", 9094),
        ("REDIS__URL", "rediss://user@redis:6390/0", 6390),
        ("KV_REDIS__URL", "redis+sentinel://s-0:26379,s-1:26380/shop/0", 26380),
        ("TRACING__ENDPOINT", "http://tempo:4318", 4318),
        ("TRACING__ENDPOINT", "https://tempo", 443),
        ("AUTH__JWKS", "https://login.example:8443/keys", 8443),
        ("TRACING__ENDPOINT", "http://[fd00::2]:4319", 4319),
    ],
)
def test_a_server_behind_a_port_that_the_policy_blocks_is_a_fault(name: str, value: str, port: int) -> None:
    variables = {f"REPLYLINE_{name}": value}
    usual = [9092, 26379]
    (fault,) = faults(manifests(variables, usual))
    assert fault == f"Deployment pool: REPLYLINE_{name}={value}: no NetworkPolicy lets port {port} through"
    assert list(faults(manifests(variables, [*usual, port]))) == []


def test_a_web_pages_origin_is_no_server() -> None:
    assert list(faults(manifests({"REPLYLINE_GATEWAY__ALLOWED_ORIGINS": "https://shop.example:4443"}, []))) == []


def test_a_pod_that_asks_for_service_links_is_a_fault() -> None:
    (fault,) = faults(manifests({}, [], enableServiceLinks=True))
    assert "enableServiceLinks" in fault
