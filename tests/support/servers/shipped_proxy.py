"""The proxy of docker-compose.yml: Caddy with the shipped Caddyfile, except for its addresses and a shorter interval of
the gateways' health checks."""

import re
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ops.stack.processes import Child, free_port
from tests.support.system import Service

CHECKED_EVERY_S: Final = 0.25
CADDYFILE: Final = Path(__file__).parents[3] / "ops" / "docker" / "Caddyfile"


class ShippedProxy:
    """The shipped proxy on a port of 127.0.0.1, in front of gateways that have separate addresses and the same ports,
    like containers."""

    def __init__(self, gateways: Sequence[Service], folder: Path, *, http: str = "", grpc: str = "") -> None:
        """`http` and `grpc` are the addresses of one gateway's other doors, if they are asked through this proxy."""
        binary = shutil.which("caddy")
        if binary is None:
            pytest.fail("caddy is missing. Type: apt-get install caddy", pytrace=False)
        self.port = free_port()
        file = folder / "Caddyfile"
        text = CADDYFILE.read_text()
        if http:
            text = text.replace("gateway-0:8082 gateway-1:8082", http)
        if grpc:
            text = text.replace("h2c://gateway-0:8083 h2c://gateway-1:8083", f"h2c://{grpc}")
        file.write_text(self._adapted(text, gateways))
        command = [binary, "run", "--config", str(file), "--adapter", "caddyfile"]
        home = {name: str(folder) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
        self._child = Child.start(command, env=home, log=folder / "caddy.log")

    def _adapted(self, text: str, gateways: Sequence[Service]) -> str:
        (metrics_port,) = {gateway.operators.rpartition(":")[2] for gateway in gateways}
        upstreams = " ".join(gateway.address for gateway in gateways)
        for pattern, ours in (
            (r"^:8080 \{$", f"http://127.0.0.1:{self.port} {{"),
            (r"(?<=reverse_proxy )gateway-0:8080 gateway-1:8080", upstreams),
            (r"(?<=health_port )\d+", metrics_port),
            (r"(?<=health_interval )1s", f"{CHECKED_EVERY_S * 1_000:.0f}ms"),
        ):
            text, count = re.subn(pattern, ours, text, flags=re.MULTILINE)
            assert count == 1, f"{pattern} stands {count} times in {CADDYFILE}"
        return text

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def ws(self) -> str:
        return f"ws://{self.address}/ws"

    def stop(self) -> None:
        self._child.stop()
