"""`replyline chaos run`, a fraction of it: 300 requests, and two workers, a gateway and Redis killed meanwhile.

The whole, 2,400 requests on three brokers of which two are killed, runs by `make chaos` (docs/reliability.md).
"""

import asyncio
import json
import sys
from pathlib import Path

import pytest

LIMIT_S = 100
FAULTS = {"worker": 2, "gateway": 1, "redis": 1, "cut": 10, "reset": 1, "silence": 1}
REQUESTS = 300


@pytest.mark.slow
async def test_every_promise_is_kept_while_processes_are_killed(tmp_path: Path) -> None:
    """The ledger finds nothing; the faults were what was asked for, and the model answered all the same."""
    result = tmp_path / "chaos.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli", "chaos", "run", "--seed", "1", "--minutes", "0.25", "--rate", "20"),
        *("--faults", ",".join(f"{kind}={count}" for kind, count in FAULTS.items()), "--json", str(result)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LIMIT_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    found = json.loads(result.read_bytes())
    assert found["holds"] is True
    assert set(found["invariants"].values()) == {0}
    assert found["requests"] == found["accepted"] == REQUESTS
    assert {row["kind"]: row["count"] for row in found["faults"] if row["count"]} == FAULTS
    assert found["recovered"] + found["not_recovered"] >= FAULTS["cut"] // 2
    by_model = sum(count for ending, count in found["answers"].items() if ending.startswith("model"))
    assert by_model >= REQUESTS // 2
