"""`replyline chaos`, a fraction of it: 300 requests while processes are killed and deployed anew, while an
engine hangs, and while the network before Kafka, Redis and the gateways is bad.

The whole runs by `make reliability` (docs/reliability.md).
"""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

LIMIT_S = 100
FAULTS = {"worker": 2, "gateway": 1, "redis": 1, "roll": 1, "cut": 10, "timeout": 1, "reset": 1}
REQUESTS = 300
CELLS = ("reset:kafka", "slow-close:client")
CELL_REQUESTS = 30


async def chaos(tmp_path: Path, *arguments: str) -> Any:
    """What it writes. It fails with all that was said where a promise was broken."""
    result = tmp_path / "chaos.json"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli", "chaos", *arguments, "--json", str(result)),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(LIMIT_S):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    return json.loads(result.read_bytes())


@pytest.mark.slow
async def test_every_promise_is_kept_while_processes_are_killed_and_deployed_anew(tmp_path: Path) -> None:
    """The ledger finds nothing; the faults were what was asked for, and the model answered all the same. Who was at a
    gateway that was asked to go was told so."""
    faults = ",".join(f"{kind}={count}" for kind, count in FAULTS.items())
    found = await chaos(tmp_path, "run", "--seed", "1", "--minutes", "0.2", "--rate", "25", "--faults", faults)
    assert found["holds"] is True
    assert set(found["invariants"].values()) == {0}
    assert found["requests"] == found["accepted"] == REQUESTS
    assert {row["kind"]: row["count"] for row in found["faults"] if row["count"]} == FAULTS
    assert found["recovered"] + found["not_recovered"] >= FAULTS["cut"] // 2
    assert found["farewells"] > 0
    by_model = sum(count for ending, count in found["answers"].items() if ending.startswith("model"))
    assert by_model >= REQUESTS // 2


@pytest.mark.slow
async def test_every_promise_is_kept_while_an_engine_hangs(tmp_path: Path) -> None:
    """Its worker ends by itself, or the run would have failed; the other one answers what it had begun."""
    asked = ("--seed", "1", "--minutes", "0.4", "--rate", "20", "--faults", "hang=1")
    found = await chaos(tmp_path, "run", *asked)
    assert found["holds"] is True
    assert set(found["invariants"].values()) == {0}
    assert found["requests"] == found["accepted"]
    assert {row["kind"]: row["count"] for row in found["faults"] if row["count"]} == {"hang": 1}


@pytest.mark.slow
async def test_every_promise_is_kept_while_the_network_is_bad(tmp_path: Path) -> None:
    """Before Kafka, Redis and the gateways: the ledger finds nothing, and each fault has met something."""
    asked = ("--requests", str(CELL_REQUESTS), "--cells", ",".join(CELLS))
    found = await chaos(tmp_path, "network", "--seed", "1", *asked)
    assert found["holds"] is True
    assert [row["cell"] for row in found["cells"]] == list(CELLS)
    for row in found["cells"]:
        assert set(row["invariants"].values()) == {0}
        assert row["requests"] == row["accepted"] == CELL_REQUESTS
        assert row["faults"] > 0
        assert row["carried_bytes"] > 0
        assert row["cut"] > 0
    _, client = found["cells"]
    assert client["recovered"] > 0
