"""WebSocket by RFC 6455: Autobahn's fuzzing client against an echo server that uses the gateway's server code.

All cases but those of compression (12 and 13), which the gateway does not offer.
"""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ops.stack.processes import Child, free_port
from tests.support.reliability import Reliability
from tests.support.system import eventually

HERE = Path(__file__).parents[1]
WSTEST = HERE.parents[1] / ".cache" / "autobahn" / "wstest"
LIMIT_S = 300
CASES = 301
# 7.1.5: a close in the middle of a fragmented message is answered with 1002, which the RFC allows, instead of 1000. The
# others: messages of 4 MiB in 4,096 fragments and more exceed the library's limit.
ALLOWED = {"7.1.5", "9.3.1", "9.3.2", "9.3.3", "9.4.1", "9.4.2", "9.4.3"}
PASSED = {"OK", "NON-STRICT", "INFORMATIONAL"}


@pytest_asyncio.fixture
async def echo(tmp_path: Path) -> AsyncIterator[str]:
    """Yield its URL. At the end it must stop on request, without a fault in its log."""
    port, log = free_port(), tmp_path / "echo.log"
    child = Child.start([sys.executable, HERE / "support" / "echo_gateway.py", str(port)], log=log)
    try:
        await eventually(lambda: _listens(port))
        yield f"ws://127.0.0.1:{port}/ws"
    finally:
        child.stop()
    assert (child.process.returncode, log.read_text()) == (0, "")


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    await writer.wait_closed()
    return True


async def fuzz(url: str, folder: Path) -> dict[str, dict[str, Any]]:
    """Return Autobahn's report: the result of each case."""
    if not WSTEST.exists():
        pytest.fail("Autobahn's test suite is missing. Type: ops/setup/autobahn", pytrace=False)
    spec = {
        "outdir": str(folder),
        "servers": [{"agent": "gateway", "url": url}],
        "cases": ["*"],
        "exclude-cases": ["12.*", "13.*"],
        "exclude-agent-cases": {},
    }
    path = folder / "spec.json"
    path.write_text(json.dumps(spec))
    process = await asyncio.create_subprocess_exec(
        WSTEST,
        *("--mode", "fuzzingclient", "--spec", path),
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(LIMIT_S):
            said, _ = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    assert process.returncode == 0, said.decode()
    report: dict[str, dict[str, Any]] = json.loads((folder / "index.json").read_bytes())["gateway"]
    return report


@pytest.mark.promise(1)
@pytest.mark.long
async def test_the_gateways_sockets_pass_autobahn(echo: str, tmp_path: Path, reliability: Reliability) -> None:
    """Each case ends as the RFC requires, in its messages and its close, except for the library's own limits."""
    report = await fuzz(echo, tmp_path)
    failed = {case for case, found in report.items() if not {found["behavior"], found["behaviorClose"]} <= PASSED}
    reliability.found(
        figure=f"{len(report)} cases, not passed: {', '.join(sorted(failed)) or 'none'}",
        target=f"{CASES} cases, not passed at most: {', '.join(sorted(ALLOWED))}",
        holds=len(report) == CASES and failed <= ALLOWED,
    )
