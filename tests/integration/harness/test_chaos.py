"""The chaos ledger finds no broken promise: rows 4, 13, 26, 27 and 28 of docs/reliability.md, in part."""

import asyncio
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.reliability import Reliability

Counts = dict[str, int]


@dataclass(frozen=True, slots=True)
class Try:
    """A run with these faults, at least `least` of which strike. One is left out if its group has not recovered in
    time, so a long run draws more.
    """

    options: str
    faults: Counts
    least: Counts


def exactly(options: str, faults: Counts) -> Try:
    return Try(options, faults, faults)


LEDGER = Try(
    "--minutes 17 --brokers 3",
    {"worker": 52, "rebalance": 21, "gateway": 24, "redis": 12, "broker": 8, "cut": 300}
    | dict.fromkeys(("latency", "timeout", "reset", "slow-close", "bandwidth", "slicer"), 8),
    {"worker": 50, "rebalance": 20, "gateway": 20, "redis": 10, "broker": 1, "cut": 300},
)
KILLS = exactly("--minutes 0.2 --rate 25", {"worker": 2, "gateway": 1, "redis": 1, "cut": 10, "timeout": 1, "reset": 1})
ROLLS, ROLL = exactly("--minutes 5", {"roll": 20}), exactly("--minutes 0.25", {"roll": 1})
INSIDE = ("slow-kafka", "slow-redis", "partition", "partition-out", "partition-in", "disk-full", "clock-wrong", "hang")
EVERYTHING = Try(
    "--minutes 3",
    dict.fromkeys(INSIDE, 4) | {"segfault": 2, "burst": 6, "noise": 6, "clock-skew": 11},
    dict.fromkeys(INSIDE, 3) | {"segfault": 1, "burst": 5, "noise": 3, "clock-skew": 10},
)
VERSIONS = Try(
    "--minutes 6 --rate 10",
    {"switch": 5, "rollback": 4, "controller": 4, "worker": 15, "gateway": 8, "redis": 4, "cut": 60},
    {"switch": 4, "rollback": 3, "controller": 3, "worker": 10, "gateway": 6, "redis": 3, "cut": 60},
)
MOVED = exactly("--minutes 1.5 --rate 8", {"switch": 1, "rollback": 1, "controller": 1, "worker": 2, "cut": 5})
SCALED = exactly("--minutes 3 --brokers 3 --rate 5", {"zone": 5, "scale-out": 8, "scale-in": 8, "worker": 2, "cut": 20})
SHRUNK = exactly("--minutes 0.6 --rate 8", {"scale-out": 2, "scale-in": 2})
HANG = exactly("--minutes 0.7", {"hang": 1, "segfault": 1})


async def run(folder: Path, reliability: Reliability, *, whole: Try, part: Try) -> Any:
    """Return the JSON of `replyline chaos run`. Fail unless each request was accepted, no invariant is broken, and the
    faults struck.
    """
    tried = whole if reliability.whole else part
    faults = ",".join(f"{kind}={count}" for kind, count in tried.faults.items())
    result = folder / "chaos.json"
    options = ("--seed", "1", *tried.options.split(), "--faults", faults, "--json", str(result))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ops.cli", "chaos", "run", *options),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(reliability.amount(1_700, part=300)):
        said, _ = await process.communicate()
    assert process.returncode == 0, said.decode()
    found = json.loads(result.read_bytes())
    assert found["holds"] is True
    assert set(found["invariants"].values()) == {0}
    assert found["requests"] == found["accepted"] > 0
    struck = {row["kind"]: row["count"] for row in found["faults"] if row["count"]}
    reliability.found(
        figure=f"{found['requests']:,} requests; {', '.join(f'{count} {kind}' for kind, count in struck.items())}; "
        f"0 broken; the last end {found['latest_ms']} ms after its deadline; {found['excused']} excused; "
        f"{sum(count for ending, count in found['answers'].items() if not ending.startswith('model'))} by the fallback",
        target=", ".join(f"{count} {kind}" for kind, count in tried.least.items()),
        holds=all(struck.get(kind, 0) >= count for kind, count in tried.least.items()),
    )
    return found


@pytest.mark.long
@pytest.mark.promise(4)
async def test_every_promise_is_kept_while_processes_are_killed(tmp_path: Path, reliability: Reliability) -> None:
    """Clients resume, and the model still answers."""
    found = await run(tmp_path, reliability, whole=LEDGER, part=KILLS)
    assert found["requests"] >= reliability.amount(20_000, part=300)
    assert found["recovered"] + found["not_recovered"] >= KILLS.faults["cut"] // 2
    by_model = sum(count for ending, count in found["answers"].items() if ending.startswith("model"))
    assert by_model >= found["requests"] // 2


@pytest.mark.long
@pytest.mark.promise(13)
async def test_no_request_fails_while_every_process_is_redeployed(tmp_path: Path, reliability: Reliability) -> None:
    """A client of a draining gateway is notified; no client is away at a deadline, and no answer is an error."""
    found = await run(tmp_path, reliability, whole=ROLLS, part=ROLL)
    assert found["excused"] == 0
    assert found["farewells"] > 0
    assert not any(" failed/" in ending for ending in found["answers"])


@pytest.mark.long
@pytest.mark.promise(26)
async def test_every_promise_is_kept_during_network_faults_and_hangs(tmp_path: Path, reliability: Reliability) -> None:
    """In part: an engine hangs, and one crashes. Its worker ends by itself, or the run would fail; the other completes
    its answers.
    """
    found = await run(tmp_path, reliability, whole=EVERYTHING, part=HANG)
    if reliability.whole:
        assert found["met"]
        assert all(found["met"].values()), found["met"]


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.promise(27)
async def test_every_promise_is_kept_while_versions_change(tmp_path: Path, reliability: Reliability) -> None:
    """The champion is switched, a canary is rolled back and a rollout's controller dies, along with kills."""
    await run(tmp_path, reliability, whole=VERSIONS, part=MOVED)


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.promise(28)
async def test_every_promise_is_kept_while_a_fleet_grows_and_shrinks(tmp_path: Path, reliability: Reliability) -> None:
    """In the full run zones are lost as well, each with its broker, its gateway and its worker."""
    await run(tmp_path, reliability, whole=SCALED, part=SHRUNK)
