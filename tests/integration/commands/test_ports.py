"""Every process ends with one line if one of its ports is taken, listens on IPv4 and IPv6 at `::`, and ends at SIGTERM
in any phase of its start.
"""

import asyncio
import os
import signal
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest

from ops.stack.processes import free_port
from tests.integration.commands.test_cli import REPLYLINE
from tests.support.system import eventually

GATEWAY = (sys.executable, "-m", "gateway")
WORKER = (sys.executable, "-m", "workers")
UP = (str(REPLYLINE), "up")
OPERATORS = ("autoscale", "rollout")
AUTOSCALE = (str(REPLYLINE), "autoscale", "run", "--metrics-port")
ROLLOUT = (str(REPLYLINE), "rollout", "run", "--metrics-port")
# Each process, the setting of each of its ports, and whether the port is given as a variable.
PORTS = [
    *((GATEWAY, f"REPLYLINE_GATEWAY__{name}") for name in ("PORT", "HTTP_PORT", "GRPC_PORT", "METRICS_PORT")),
    (WORKER, "REPLYLINE_WORKER__METRICS_PORT"),
    *((UP, f"REPLYLINE_GATEWAY__{name}") for name in ("HTTP_PORT", "GRPC_PORT")),
    (AUTOSCALE, "--metrics-port"),
    (ROLLOUT, "--metrics-port"),
]
IDS = [f"{command[-1] if command[-1][0] != '-' else command[1]}-{name}" for command, name in PORTS]


def environment(**given: str) -> dict[str, str]:
    """No Kafka, no Redis, and every port a free one."""
    ports = {f"REPLYLINE_GATEWAY__{name}": str(free_port()) for name in ("PORT", "HTTP_PORT", "GRPC_PORT")}
    return {
        "PATH": "/usr/bin:/bin",
        "COLUMNS": "200",
        "REPLYLINE_AUTH__MODE": "anonymous",
        "REPLYLINE_KAFKA__BOOTSTRAP_SERVERS": "127.0.0.1:1",
        "REPLYLINE_REDIS__URL": "redis://127.0.0.1:1/0",
        "REPLYLINE_WORKER__ENGINE": "fake",
        "REPLYLINE_GATEWAY__METRICS_PORT": str(free_port()),
        "REPLYLINE_WORKER__METRICS_PORT": str(free_port()),
        **ports,
        **given,
    }


async def start(command: tuple[str, ...], env: dict[str, str]) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    return await asyncio.create_subprocess_exec(*command, env=env, stdout=pipe, stderr=pipe)


@contextmanager
def taken(host: str) -> Iterator[int]:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, 0), family=family) as server:
        yield server.getsockname()[1]


def started(command: tuple[str, ...], name: str, port: int) -> tuple[tuple[str, ...], dict[str, str]]:
    """Return the command and the environment in which that port is set."""
    return ((*command, str(port)), {}) if name.startswith("--") else (command, {name: str(port)})


@pytest.mark.parametrize(("command", "name"), PORTS, ids=IDS)
async def test_a_taken_port_ends_the_process_with_one_line(command: tuple[str, ...], name: str) -> None:
    with taken("127.0.0.1") as port:
        command, given = started(command, name, port)
        process = await start(command, environment(**given))
        async with asyncio.timeout(30):
            _, err = await process.communicate()
    lines = [line for line in err.decode().splitlines() if not line.startswith("{")]
    assert process.returncode == 1, lines
    (line,) = lines
    assert f"port {port} is in use" in line
    assert name in line
    assert "another port" in line


@pytest.mark.parametrize("host", ["::", "::1"])
@pytest.mark.parametrize("command", [GATEWAY, WORKER, AUTOSCALE, ROLLOUT], ids=["gateway", "worker", *OPERATORS])
async def test_every_port_is_open_at_the_configured_address(command: tuple[str, ...], host: str) -> None:
    """`::` is every address of IPv4 and IPv6, `::1` is IPv6 alone. SIGTERM ends the process even without Kafka."""
    env = environment(
        **{f"REPLYLINE_{each}": host for each in ("GATEWAY__HOST", "GATEWAY__METRICS_HOST", "WORKER__METRICS_HOST")}
    )
    names = [name for each, name in PORTS if each == command]
    ports = [int(env.get(name) or free_port()) for name in names]
    if command in {AUTOSCALE, ROLLOUT}:
        command = (*command, str(ports[0]), "--metrics-host", host)
    process = await start(command, env)
    try:
        for port in ports:
            await eventually(partial(is_open, "::1", port), limit_s=20)
            assert is_open("127.0.0.1", port) is (host == "::")
    finally:
        process.send_signal(signal.SIGTERM)
        async with asyncio.timeout(20):
            await process.communicate()
    assert process.returncode == 0


async def test_a_worker_ends_at_sigterm_while_its_model_loads(tmp_path: Path) -> None:
    """A read that never ends simulates a plan that is built for minutes."""
    os.mkfifo(tmp_path / "manifest.json")
    port = free_port()
    given = {"WORKER__ENGINE": "native", "MODEL__DIR": str(tmp_path), "WORKER__METRICS_PORT": str(port)}
    process = await start(WORKER, environment(**{f"REPLYLINE_{name}": value for name, value in given.items()}))
    await eventually(lambda: is_open("127.0.0.1", port), limit_s=20)
    await asyncio.sleep(4)  # the registry is queried for 3 s; then the model is opened
    process.send_signal(signal.SIGTERM)
    async with asyncio.timeout(20):
        out, err = await process.communicate()
    assert process.returncode == 0, err
    assert b"before the model was loaded" in out + err


def is_open(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=1).close()
    except OSError:
        return False
    return True
