"""The table of costs that every worker of a comparison starts with: measured once, while nothing else runs, or given.

A worker measures its engine at its first start and keeps the table in its folder of costs. The fake engine's it
measures anew at each start; those are measured here, to simulate with.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ops.load.system import System
from ops.measure.others_cpu import OthersCpu
from ops.stack.processes import ServiceError
from ops.traces.costs import EngineCosts, read_costs
from shared.errors import SettingsError
from shared.settings import Settings
from tests.bench.policies.outcome import QUIET
from workers.loading import load_model
from workers.serving.calibration import calibrate, costs_key, save

_CALIBRATIONS: Final = 3
_FAKE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class KeptCosts:
    """The costs, and the file that the workers read them from. `others_cpu`: what others had of the cores while they
    were measured."""

    costs: EngineCosts
    path: Path
    content: bytes
    others_cpu: float

    def check_kept(self) -> None:
        """Raises `ServiceError` where a worker would not have the table: it is another engine's or machine's."""
        if self.path.read_bytes() != self.content:
            raise ServiceError("--costs: the worker measured its engine again: the file is of another; leave it out")


def given_costs(settings: Settings, file: Path) -> KeptCosts:
    """A worker's file of costs. Raises `SettingsError`."""
    costs = read_costs(str(file))
    key, worker = costs.table.key, settings.worker
    if (key.engine, key.num_slots) != (worker.engine, worker.slots):
        raise SettingsError(
            f"--costs {file}: of {key.engine} with {key.num_slots} slots, not of {worker.engine} with {worker.slots}"
        )
    path, content = worker.costs_dir / f"{key.engine}-{key.model}-{key.num_slots}.json", file.read_bytes()
    path.write_bytes(content)
    return KeptCosts(costs, path, content, others_cpu=0.0)


async def measured_costs(settings: Settings, env: Mapping[str, str]) -> KeptCosts:
    """Measure; while something else runs again, and the quietest is taken. Raises `ServiceError`."""
    found: list[tuple[float, Path, bytes]] = []
    for _ in range(_CALIBRATIONS):
        others_cpu = await _measure(settings, env)
        for path in settings.worker.costs_dir.glob("*.json"):  # none: what was measured fits no law
            found.append((others_cpu, path, path.read_bytes()))
            path.unlink()
        if found and others_cpu <= QUIET:
            break
    if not found:
        raise ServiceError("the engine's calls are held up by what else runs here; measure on a quiet machine")
    others_cpu, path, content = min(found)
    path.write_bytes(content)
    return KeptCosts(read_costs(str(path)), path, content, others_cpu)


async def _measure(settings: Settings, env: Mapping[str, str]) -> float:
    """Measure into the folder of costs. Returns the share of the cores that others had meanwhile."""
    if settings.worker.engine == "fake":
        others = OthersCpu()
        await asyncio.to_thread(_measure_fake, settings)
        return others.share()
    with System(settings=settings, broker="embedded", env=env) as system:
        await system.start_services()
        others = OthersCpu()
        worker, _ = await system.start_worker()
        return others.share(worker.process.pid)


def _measure_fake(settings: Settings) -> None:
    engine = load_model(settings).engine
    try:
        table = calibrate(engine, costs_key(engine.info, threads=1), budget_s=_FAKE_S)
        save(settings.worker.costs_dir / "fake.json", table)
    finally:
        engine.close()
