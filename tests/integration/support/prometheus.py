"""A real Prometheus with the rules of ops/alerts, scraping once a second."""

import asyncio
import json
import shutil
import urllib.parse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from ops.stack.own_pages import open_page
from ops.stack.processes import Child, free_port

RULES: Final = Path(__file__).parents[3] / "ops" / "alerts" / "rules.yml"
_START_S: Final = 30.0
_ASK_S: Final = 5.0


def program(name: str) -> str:
    """Return its path; without it the test fails and names the command to type."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing. Type: apt-get install --no-install-recommends prometheus", pytrace=False)
    return found


@dataclass(slots=True)
class Prometheus:
    """Scrapes these addresses, by job. It stores its data in `folder`."""

    folder: Path
    addresses: Mapping[str, Sequence[str]]
    rules: Path = RULES
    port: int = field(default_factory=free_port)
    _child: Child | None = None

    async def start(self) -> None:
        config = {
            "global": {"scrape_interval": "1s", "scrape_timeout": "1s", "evaluation_interval": "1s"},
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
        log = self.folder / "prometheus.log"
        self._child = Child.start([program("prometheus"), *arguments], env={}, log=log)
        began = await asyncio.to_thread(self._child.wait_until, lambda: bool(self.ask("vector(1)")), timeout_s=_START_S)
        assert began, log.read_text()

    def ask(self, expr: str) -> list[dict[str, Any]]:
        """Return the series of an instant query that have a value; none while it does not answer."""
        query = urllib.parse.urlencode({"query": expr})
        try:
            with open_page(f"http://127.0.0.1:{self.port}/api/v1/query?{query}", timeout_s=_ASK_S) as page:
                answer = json.load(page)
        except OSError:
            return []
        found = answer["data"]["result"]
        return [series for series in found if series["value"][1] != "NaN"]

    async def knows(self, expr: str) -> bool:
        return bool(await asyncio.to_thread(self.ask, expr))

    def stop(self) -> None:
        """May be called again."""
        if self._child is not None:
            self._child.stop()
