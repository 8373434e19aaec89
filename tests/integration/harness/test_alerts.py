"""Alerts and dashboards on a real Prometheus: the rules are valid, the expressions parse, the panels show data."""

import asyncio
import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from ops.dashboards.__main__ import read_boards, scoped
from tests.integration.support.prometheus import Prometheus, program
from tests.support.shared_system import Running
from tests.support.system import Service, eventually
from tests.support.wire import Client

pytestmark = pytest.mark.system(
    worker__slots=1, kv__host_mib=0, kv__timeout_ms=5_000, worker__fake_prefill_ms_per_token=0.02
)

ROOT = Path(__file__).parents[3]
ALERTS = ROOT / "ops" / "alerts"


def _chosen(expr: str) -> str:
    """Return the expression as Grafana sends it where no namespace and release is chosen."""
    return re.sub(r"\$(namespace|release)", ".*", expr).replace("$__rate_interval", "20s")


EXPRESSIONS: Final = {
    (board.name, panel.title, legend): _chosen(scoped(expr))
    for board in read_boards()
    for panel in board.panels
    for legend, expr in panel.lines.items()
}
# Panels that show nothing on a machine without a GPU, or without a sized pool.
ABSENT: Final = {
    ("fleet", "Workers wanted and found"),
    ("fleet", "Work asked and expected"),
    ("fleet", "Work that a worker is asked"),
    ("fleet", "Changes of the wanted size"),
    ("workers", "GPU memory"),
    ("workers", "GPU temperature"),
    ("workers", "GPU: share of time with a kernel running"),
}


def _promtool(*arguments: object) -> str:
    ran = subprocess.run([program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_prometheus_accepts_the_rules() -> None:
    """Compose's own configuration finds them under this name."""
    assert "SUCCESS" in _promtool("check", "rules", ALERTS / "rules.yml")


@pytest.mark.promise(24)
def test_each_alert_fires_within_a_minute_of_its_fault_and_not_without() -> None:
    assert "SUCCESS" in _promtool("test", "rules", ALERTS / "tests.yml")


def test_every_panels_expression_parses(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": expr} for number, expr in enumerate(EXPRESSIONS.values())]
    file = tmp_path / "panels.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))
    assert f"{len(rules)} rules found" in _promtool("check", "rules", file)


def test_prometheus_accepts_composes_configuration(tmp_path: Path) -> None:
    """With the rules where compose mounts them."""
    config = (ROOT / "ops/docker/prometheus.yml").read_text().replace("/etc/prometheus", str(tmp_path))
    (tmp_path / "prometheus.yml").write_text(config)
    shutil.copy(ALERTS / "rules.yml", tmp_path)
    assert "SUCCESS" in _promtool("check", "config", tmp_path / "prometheus.yml")


async def test_every_panel_shows_data_after_two_conversations(running: Running, tmp_path: Path) -> None:
    """GPU panels are excepted on a machine without one; events that did not happen are shown as 0. No alert is pending,
    and no label names a customer. Answers are rated, and both customers ask for a person. The worker has one slot and
    no memory for KV: each question finds its conversation's KV in Redis.
    """
    worker, gateway = running.workers[0], running.gateways[0]
    addresses = {"gateway": [gateway.operators], "worker": [worker.operators]}
    prometheus = Prometheus(tmp_path, addresses)
    try:
        await prometheus.start()
        await eventually(lambda: len(prometheus.ask("up == 1")) == 2)
        async with Client.connect(gateway.ws) as one, Client.connect(gateway.ws) as other:
            for caller in (one, other, one):
                for client in (one, other):
                    answer = await client.ask("How do I return an item?", max_output_tokens=20)
                    assert answer.outcome[2] == "model"
                    rated = {"rating": "down", "reason": "wrong"} if client is one else {"rating": "up"}
                    await client.send({"type": "feedback", "response_id": answer.response["id"], **rated})
                await caller.send({"type": "handoff.request"})
                await _scraped_again(prometheus)
            sessions = (one.session_id, other.session_id)
        assert _empty(prometheus) == ABSENT
        await eventually(lambda: prometheus.ask("ALERTS") == [], limit_s=10)  # a scrape may have come too late
        for service in (gateway, worker):
            await _names_nobody(service, sessions)
    finally:
        await asyncio.to_thread(prometheus.stop)


def _empty(prometheus: Prometheus) -> set[tuple[str, str]]:
    """Return the (dashboard, panel) pairs none of whose expressions shows anything."""
    shown = {key[:2] for key, expr in EXPRESSIONS.items() if prometheus.ask(expr)}
    return {key[:2] for key in EXPRESSIONS} - shown


async def _scraped_again(prometheus: Prometheus) -> None:
    """Wait for two more scrapes of each process."""
    before = prometheus.ask("count_over_time(up[10m])")
    wanted = min(float(series["value"][1]) for series in before) + 2
    await eventually(lambda: len(prometheus.ask(f"count_over_time(up[10m]) >= {wanted}")) == len(before))


async def _names_nobody(service: Service, sessions: tuple[str, ...]) -> None:
    page = await service.get("/metrics")
    assert page is not None
    for name in ("demo", *sessions):
        assert name not in page.body.decode()
