"""A real Prometheus with the rules of ops/alerts, for as long as the alerts are tried."""

import asyncio
import json
import shutil
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from ops.stack.own_pages import open_page
from ops.stack.processes import Child, ServiceError, free_port
from tests.chaos.tools import PROMETHEUS

RULES: Final = Path(__file__).parents[2] / "ops" / "alerts" / "rules.yml"
_START_S: Final = 30.0
_ASK_S: Final = 5.0


@dataclass(slots=True)
class Prometheus:
    """Of these addresses, by job. What it stores lies in `folder`. Scraped as often as the rules want it, which say
    themselves how often they are evaluated."""

    folder: Path
    addresses: Mapping[str, Sequence[str]]
    every_s: int = 5
    rules: Path = RULES
    port: int = field(default_factory=free_port)
    _child: Child | None = None

    async def start(self) -> None:
        """Raises `ServiceError`."""
        program = shutil.which(PROMETHEUS)
        if program is None:
            raise ServiceError("prometheus is missing. Type: apt-get install --no-install-recommends prometheus")
        every = f"{self.every_s}s"
        config = {
            "global": {"scrape_interval": every, "scrape_timeout": every, "evaluation_interval": every},
            "rule_files": [str(self.rules)],
            "scrape_configs": [
                {"job_name": job, "static_configs": [{"targets": list(targets)}]}
                for job, targets in self.addresses.items()
            ],
        }
        file = self.folder / "prometheus.yml"
        file.write_text(json.dumps(config))  # YAML holds JSON
        arguments = [
            f"--config.file={file}",
            f"--storage.tsdb.path={self.folder / 'prometheus'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self._child = Child.start([program, *arguments], env={}, log=self.folder / "prometheus.log")
        if not await asyncio.to_thread(self._child.wait_until, lambda: self._firing() is not None, timeout_s=_START_S):
            raise ServiceError(f"prometheus did not start; its log: {self.folder / 'prometheus.log'}")

    async def firing(self) -> set[str] | None:
        """The alerts that fire now; None where it does not answer."""
        return await asyncio.to_thread(self._firing)

    async def knows(self, expr: str) -> bool:
        """Whether it has a value of that now."""
        return bool(await asyncio.to_thread(self._ask, expr))

    def _firing(self) -> set[str] | None:
        found = self._ask('ALERTS{alertstate="firing"}')
        return None if found is None else {series["metric"]["alertname"] for series in found}

    def _ask(self, expr: str) -> list[dict[str, Any]] | None:
        query = urllib.parse.urlencode({"query": expr})
        try:
            with open_page(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout_s=_ASK_S) as page:
                answer: dict[str, Any] = json.load(page)
        except OSError:
            return None
        series: list[dict[str, Any]] = answer["data"]["result"]
        return series

    def stop(self) -> None:
        """May be called again."""
        if self._child is not None:
            self._child.stop()
