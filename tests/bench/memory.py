"""`replyline bench memory`: what is resident in a process of a worker's modules and an engine, whose slots are full.

`python -m tests.bench.memory` is that process, of the engine and the slots that the settings name: it fills every slot
as a worker does, decodes one step in all of them, and prints one JSON line, `Memory`.
"""

import importlib
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
import typer
from msgspec import Struct
from rich.console import Console

from ops.measure.usage import peak_rss_bytes, rss_bytes
from shared.errors import ReplylineError, SettingsError
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from shared.settings import PREFIX, Settings, load_settings
from tests.bench.cell import Bench, Figures, Target, standing
from tests.bench.engines.choice import Peers, Planned, plan
from tests.bench.engines.own import OwnEngine
from tests.bench.engines.program import PEERS
from tests.bench.process import run_to_end

TARGETS: Final = (
    Target(cell="native int8", figure="full_mib", value=1.2 * 1_024),
    Target(cell="native int8", figure="load_s", value=0.3),
)
_MIB: Final = 1 << 20


class Memory(Struct, frozen=True, kw_only=True):
    """Resident MiB once the engine is loaded, and once its slots are full; the most that ever was."""

    load_s: float
    loaded_mib: float
    full_mib: float
    peak_mib: float


async def bench_memory(
    settings: Settings, bench: Bench, engines: Sequence[str], slots: int, length: int, console: Console
) -> None:
    """Raises `SettingsError` if none of them can run, `ServiceError`."""
    if peers := set(engines) & set(PEERS):
        raise SettingsError(f"--engines {', '.join(sorted(peers))}: is no worker's engine; name native or onnx")
    planned, not_run = plan(engines, settings, Peers(llama=Path(), gguf=None, source=None), 1)
    for one in not_run:
        console.print(f"NOT RUN: {one.engine}: {one.reason}", style="bold", markup=False)
    if not planned:
        raise SettingsError(f"--engines {','.join(engines)}: none of them can run here")
    env = {f"{PREFIX}WORKER__SLOTS": str(slots), f"{PREFIX}WORKER__MAX_LENGTH": str(length)}
    cells = [standing(one.name, partial(_measure, one, env)) for one in planned]
    bench = replace(bench, targets=tuple(target for target in TARGETS if target.cell in {one.name for one in planned}))
    await bench.run(cells, console, slots=slots, length=length, not_run=not_run)


async def _measure(planned: Planned, env: dict[str, str], _number: int) -> Figures:
    memory = await measured({**env, **planned.env}, python=planned.argv[0])
    return {name: round(value, 3) for name, value in msgspec.structs.asdict(memory).items()}


async def measured(env: Mapping[str, str], *, python: str = sys.executable) -> Memory:
    """Run the process with these settings. Raises `ServiceError`."""
    (*_, line), _rss_mib = await run_to_end([python, "-m", "tests.bench.memory"], env=env)
    return msgspec.json.decode(line, type=Memory)


def main() -> None:
    importlib.import_module("workers.process")  # a worker's memory without its engine
    settings = load_settings()
    try:
        own = OwnEngine.load(settings)
    except ReplylineError as error:
        raise typer.Exit(fail(str(error), BAD_INPUT_STATUS)) from None
    info, loaded = own.engine.info, rss_bytes(os.getpid())
    for slot in range(info.num_slots):
        own.add(slot, 0, info.max_length - 1)
    own.steps(info.num_slots, info.max_length - 1, 1)
    memory = Memory(
        load_s=own.what["load_s"],
        loaded_mib=loaded / _MIB,
        full_mib=rss_bytes(os.getpid()) / _MIB,
        peak_mib=peak_rss_bytes(os.getpid()) / _MIB,
    )
    sys.stdout.write(msgspec.json.encode(memory).decode() + "\n")


if __name__ == "__main__":
    typer.run(main)
