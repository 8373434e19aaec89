"""What the tests of the doors share: the clients' environments, systems to ask, and the table that they fill."""

import asyncio
import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
import pytest_asyncio

from ops.stack.processes import free_port
from tests.support.rows import Rows
from tests.support.system import CURSOR_SECRET, MakeSystem, Service, System, model_dir

ROOT = Path(__file__).parents[3]
CLIENTS = ROOT / ".cache" / "door-clients"
PROGRAMS = ROOT / "tests" / "proofs" / "doors" / "clients"
SECRET = b"a secret of thirty-two bytes or more"
_LIMIT_S = 120


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "tests/proofs/doors/" in item.nodeid:
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(1_200))


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--doors", metavar="FILE", type=Path, help="write the table of the doors to FILE")


@pytest.fixture(scope="session")
def _table(pytestconfig: pytest.Config) -> Rows:
    return Rows(pytestconfig.getoption("--doors", default=None))


@pytest.fixture
def rows(_table: Rows) -> Iterator[Rows]:
    """The table of this run; with `--doors FILE` it is written there."""
    _table.missed.clear()
    yield _table
    if _table.missed:
        pytest.fail("\n".join(_table.missed), pytrace=False)


@dataclass(frozen=True, slots=True)
class Doors:
    """One gateway, and where it listens."""

    service: Service
    http: str
    grpc: str

    @property
    def openai(self) -> str:
        return f"{self.http}/v1"


@dataclass(frozen=True, slots=True)
class Tried:
    """Gateways that can replace each other, and one worker."""

    system: System
    gateways: list[Doors]
    worker: Service
    token: str = "any"

    async def another(self, partition: int) -> Doors:
        """Start one more gateway."""
        return await _gateway(self.system, partition)


async def _gateway(system: System, partition: int) -> Doors:
    http_port, grpc_port = free_port(), free_port()
    service = system.gateway(
        gateway__reply_partition=partition, gateway__http_port=http_port, gateway__grpc_port=grpc_port
    )
    return Doors(await service.ready(), f"http://127.0.0.1:{http_port}", f"127.0.0.1:{grpc_port}")


async def _tried(system: System, token: str = "any") -> Tried:
    worker = system.worker()
    gateways = await asyncio.gather(*(_gateway(system, partition) for partition in range(2)))
    return Tried(system, list(gateways), await worker.ready(), token)


@pytest_asyncio.fixture(scope="module")
async def shop(make_system: MakeSystem) -> Tried:
    """The demo's model and help pages behind two gateways that check tokens. The token may give instructions."""
    system = await make_system(
        worker__engine="onnx",
        worker__max_length=1_024,
        model__dir=lambda _: model_dir(),
        answers__policy="grounded",
        answers__guard="true",
        auth__mode="token",
        auth__secret_file=SECRET,
        gateway__cursor_secret_file=CURSOR_SECRET,
        promise__first_token_ms=30_000,
        promise__deadline_ms=60_000,
    )
    claims = {"iss": "replyline", "aud": "replyline", "sub": "alice", "tenant": "demo", "instructions": True}
    return await _tried(system, jwt.encode(claims | {"exp": int(time.time()) + 3_600}, SECRET, algorithm="HS256"))


@pytest_asyncio.fixture(scope="module")
async def scripted(make_system: MakeSystem) -> Tried:
    """A scripted engine, 10 ms a token, behind two gateways that let anyone in."""
    system = await make_system(
        worker__fake_decode_ms_per_step=10,
        worker__reply_interval_ms=0,
        worker__slots=64,
        worker__max_waiting=256,
        limits__default_output_tokens=250,
        admission__enabled=False,
        gateway__cursor_secret_file=CURSOR_SECRET,
        gateway__messages_per_minute=1_000_000,
        promise__first_token_ms=10_000,
        promise__deadline_ms=60_000,
    )
    return await _tried(system)


async def run_client(program: list[str], *arguments: str, token: str = "any", **environment: str) -> str:
    """Run a client's program in its own environment; return what it prints. Fails with what it complains of."""
    if not (CLIENTS / ".ready").exists():
        pytest.fail("the clients are missing. Type: ops/setup/door-clients", pytrace=False)
    done = await asyncio.to_thread(
        subprocess.run,
        [*program, *arguments],
        env={"PATH": os.environ["PATH"], "HOME": os.environ["HOME"], "TOKEN": token} | environment,
        capture_output=True,
        text=True,
        timeout=_LIMIT_S,
        check=False,
    )
    if done.returncode:
        pytest.fail(f"{program[-1]}: {done.stderr[-1_500:] or done.stdout[-1_500:]}", pytrace=False)
    return done.stdout


def python_client(name: str) -> list[str]:
    return [str(CLIENTS / "python" / "bin" / "python"), "-W", "ignore", str(PROGRAMS / name)]


def node_client(name: str) -> list[str]:
    """A copy of the program next to its packages, where Node looks for them."""
    copy = CLIENTS / "node" / name
    copy.write_bytes((PROGRAMS / name).read_bytes())
    return ["node", str(copy)]


def with_version(name: str) -> str:
    """Return a client's name with the version that is pinned."""
    node = json.loads((PROGRAMS / "package.json").read_text())["dependencies"]
    python = re.findall(r"^([a-z0-9-]+)==(\S+)", (ROOT / "requirements" / "door-clients.txt").read_text(), re.MULTILINE)
    return f"{name} {({**dict(python), **node})[name]}"


def last_json(printed: str) -> Any:
    return json.loads(printed.strip().splitlines()[-1])
