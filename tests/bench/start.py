"""How long a worker takes from its process's start to its first answer, and what memory the next one shares with it.

The question waits in Apache Kafka when the process starts, and the model is on the local disk. (The embedded broker has
a new group wait three seconds for its members.) CPU is the worker's own until the answer's end: that figure does not
depend on what else the machine does.
"""

import asyncio
import os
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import JsonPath
from ops.lab.client.connection import ChatConnection
from ops.lab.client.outcome import Outcome
from ops.measure.runner import markdown, progress_bar, write_json
from ops.stack.processes import Child
from ops.stack.system import System
from shared.settings import PREFIX, Settings
from shared.wire.messages import ResponseCreate, SessionStart
from tests.bench.memory import measured

_DEADLINE_MS: Final = 60_000
_OUTPUT_TOKENS: Final = 8
_MIB: Final = 1_024
_UTIME, _STIME = 11, 12  # after the name, `proc(5)`
_ENV: Final = {"PROMISE__FIRST_TOKEN_MS": str(_DEADLINE_MS), "PROMISE__DEADLINE_MS": str(_DEADLINE_MS)}
_ONE_SLOT: Final = {f"{PREFIX}WORKER__SLOTS": "1", f"{PREFIX}WORKER__MAX_LENGTH": "64"}


class StartRow(Struct, frozen=True, kw_only=True):
    """Medians of `rounds` starts; `load_s` is the engine's load, in a separate process. `own_mib` is the memory freed
    with the process (PSS next to a second worker of the machine), `shared_mib` the memory that both share."""

    engine: str
    rounds: int
    load_s: float
    ready_s: float
    first_text_s: float
    cpu_s: float
    rss_mib: float
    own_mib: float
    shared_mib: float


@dataclass(frozen=True, slots=True)
class _Start:
    ready_s: float
    first_text_s: float
    cpu_s: float


async def bench_start(settings: Settings, rounds: int, json_path: JsonPath, console: Console) -> None:
    """Start a worker this many times, and one next to another. Raises `ServiceError`."""
    starts: list[_Start] = []
    with (
        System(settings=settings, broker="kafka", env=_ENV) as system,
        progress_bar(console, "start", rounds) as done,
    ):
        await system.start_services()
        _, url = await system.start_gateway()
        for number in range(rounds):
            child, start = await _started(system, url, number)
            starts.append(start)
            system.end(child)
            done(number + 1)
        memory = await _memory_of_two(system)
    loads = [(await measured(_ONE_SLOT)).load_s for _ in range(rounds)]
    row = StartRow(
        engine=settings.worker.engine,
        rounds=rounds,
        load_s=round(median(loads), 3),
        ready_s=round(median(one.ready_s for one in starts), 2),
        first_text_s=round(median(one.first_text_s for one in starts), 2),
        cpu_s=round(median(one.cpu_s for one in starts), 2),
        rss_mib=memory["Rss"],
        own_mib=memory["Pss"],
        shared_mib=round(memory["Rss"] - memory["Pss"], 1),
    )
    fields = StartRow.__struct_fields__
    typer.echo(markdown(fields, [[getattr(row, name) for name in fields]]))
    write_json(json_path, row)


async def _started(system: System, url: str, number: int) -> tuple[Child, _Start]:
    answered = asyncio.Event()
    connection = ChatConnection(lambda _connection, _outcome: answered.set())
    await connection.open(url, SessionStart())
    begun_s = time.monotonic()
    outcome = Outcome(scheduled_s=begun_s, deadline_ms=_DEADLINE_MS)
    asked = ResponseCreate(event_id=f"start-{number}", input="Where is my parcel?", max_output_tokens=_OUTPUT_TOKENS)
    connection.ask(asked, outcome, begun_s)
    child, _ = await system.start_worker()
    ready_s = time.monotonic() - begun_s
    async with asyncio.timeout(_DEADLINE_MS / 1_000):
        await answered.wait()
    connection.close()
    assert outcome.by_model, f"the model did not answer: {outcome.source}, {outcome.error}"
    assert outcome.first_s is not None
    return child, _Start(ready_s, outcome.first_s - begun_s, _cpu_s(child))


async def _memory_of_two(system: System) -> dict[str, float]:
    """Return the first one's RSS and PSS while a second one runs."""
    first, _ = await system.start_worker()
    await system.start_worker()
    return _memory_mib(first)


def _memory_mib(child: Child) -> dict[str, float]:
    lines = Path(f"/proc/{child.process.pid}/smaps_rollup").read_text().splitlines()[1:]
    sizes = {name: int(rest.split()[0]) for name, _, rest in (line.partition(":") for line in lines)}
    return {name: round(sizes[name] / _MIB, 1) for name in ("Rss", "Pss")}


def _cpu_s(child: Child) -> float:
    fields = Path(f"/proc/{child.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_STIME])) / os.sysconf("SC_CLK_TCK")
