"""`replyline chaos network`: each fault of the network on each hop, under a load of its own; then its verdict."""

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.measure.arrivals import schedule
from ops.measure.environment import environment
from ops.measure.runner import check_writable, write_json
from ops.stack.processes import free_port
from shared.errors import SettingsError
from tests.chaos.actors.fleet import Fleet
from tests.chaos.actors.load import Load, LoadFailed
from tests.chaos.faults.cells import ALL, Cell, Hop, load_s, parse_cells, pulses
from tests.chaos.faults.schedule import Fault, Kind
from tests.chaos.hops.proxy import Proxy
from tests.chaos.hops.weather import Weather
from tests.chaos.ledger.questions import make_questions
from tests.chaos.ledger.requests import Ledger, Line
from tests.chaos.ledger.rights import Oracle
from tests.chaos.ledger.verdict import judge
from tests.chaos.network_table import CellRow, NetworkReport, Passed, row_of, table
from tests.chaos.run import PromiseBroken, tell_stories

_CLIENTS: Final = 20
_RATE: Final = 40.0
_MOST_REQUESTS: Final = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkOptions:
    """`requests` in each cell; `cells` as `--cells` has them, None: all."""

    seed: int
    requests: int
    cells: str | None
    json_path: Path | None

    def plan(self) -> tuple[Cell, ...]:
        """Raises `SettingsError`."""
        if not 0 < self.requests <= _MOST_REQUESTS:
            raise SettingsError(f"--requests {self.requests}: must be 1 to {_MOST_REQUESTS}")
        check_writable(self.json_path)
        return ALL if self.cells is None else parse_cells(self.cells)


async def run_network(options: NetworkOptions, console: Console) -> None:
    """Print the table and, of each cell where a promise was broken, the stories; the table and `--json` hold what was
    tried before an error too. Raises `PromiseBroken`, `SettingsError`, `LoadFailed`, `ServiceError`."""
    cells = options.plan()
    facts = environment(engine="fake", broker="kafka")
    rows: list[CellRow] = []
    try:
        logs = await _try_cells(cells, rows, options, console)
    finally:
        holds = len(rows) == len(cells) and all(row.holds for row in rows)
        found = NetworkReport(seed=options.seed, holds=holds, cells=rows, environment=facts)
        if rows:
            print(table(found), flush=True)
        write_json(options.json_path, found)
    if not found.holds:
        broken = ",".join(row.cell for row in rows if not row.holds)
        raise PromiseBroken(
            f"invariants do not hold in {broken}; the processes' logs: {logs}; again: replyline chaos network "
            f"--seed {options.seed} --requests {options.requests} --cells {broken}"
        )


async def _try_cells(cells: Sequence[Cell], rows: list[CellRow], options: NetworkOptions, console: Console) -> Path:
    """Add the row of each as it comes; return where the processes' logs are, if a cell does not hold. Raises
    `LoadFailed`, `ServiceError`."""
    async with AsyncExitStack() as stack:
        before = {
            hop: await stack.enter_async_context(Proxy("127.0.0.1", free_port())) for hop in (Hop.KAFKA, Hop.REDIS)
        }
        fleet = Fleet(brokers=1, before={hop: [proxy] for hop, proxy in before.items()})
        try:
            console.print("starting Kafka, Redis, two gateways and two workers, proxies between them")
            await fleet.start()
            trial = _Trial(options, fleet, {hop: Weather(proxy) for hop, proxy in before.items()}, Oracle())
            for cell in cells:
                row = await trial.run(cell, console)
                rows.append(row)
                fleet.keep_logs = fleet.keep_logs or not row.holds
        except Exception as error:
            fleet.keep_evidence(error)
            raise
        finally:
            await asyncio.to_thread(fleet.stop)  # whoever drains still speaks through the proxies of this loop
    return fleet.logs


@dataclass(slots=True)
class _Trial:
    options: NetworkOptions
    fleet: Fleet
    weather: Mapping[Hop, Weather]
    oracle: Oracle

    async def run(self, cell: Cell, console: Console) -> CellRow:
        """Raises `LoadFailed`, `ServiceError`."""
        ledger, load = self._load(cell)
        before = _passed(self._weather(cell, load))
        loading = asyncio.create_task(asyncio.to_thread(load.run))
        try:
            await asyncio.to_thread(load.begun.wait)
            await self._blow(cell, load)
            await loading
        finally:
            load.stop()
            await asyncio.shield(loading)
        if load.failure is not None:
            raise LoadFailed(f"{cell}: {load.failure}")
        over_s = time.monotonic()
        await self.fleet.ready()
        back_s = time.monotonic() - over_s
        verdict = await asyncio.to_thread(judge, ledger, self.oracle)
        row = row_of(cell, verdict, passed=_passed(self._weather(cell, load)).since(before), back_s=back_s)
        console.print(f"{cell}: {'holds' if row.holds else 'BROKEN'}", highlight=False)
        if not verdict.holds:
            tell_stories(verdict, ledger, [*self.fleet.lines, *load.lines], load.start_s)
        return row

    def _weather(self, cell: Cell, load: Load) -> list[Weather]:
        return load.weather if cell.hop is Hop.CLIENT else [self.weather[cell.hop]]

    def _load(self, cell: Cell) -> tuple[Ledger, Load]:
        """The same of a cell whichever others are run, and of no two cells."""
        ledger, count = Ledger(), self.options.requests
        seed = self.options.seed * len(ALL) + ALL.index(cell)
        rate = count / load_s(count, rate=_RATE)
        load = Load(
            ledger=ledger,
            gateway_ports=self.fleet.gateway_ports,
            questions=make_questions(seed, count, _CLIENTS),
            times_s=schedule("poisson", rate=rate, count=count, seed=seed),
            seed=seed,
            proxied_share=1.0 if cell.hop is Hop.CLIENT else 0.0,
        )
        return ledger, load

    async def _blow(self, cell: Cell, load: Load) -> None:
        """Carry out the faults, each at its time, until the last is over."""
        for number, pulse in enumerate(pulses(cell.fault, load_s(self.options.requests, rate=_RATE))):
            await asyncio.sleep(max(0.0, load.start_s + pulse.at_s - time.monotonic()))
            if load.failure is not None:
                return
            if cell.hop is Hop.CLIENT:
                gateways = range(len(self.fleet.gateway_ports))
                # One gateway of two is out of reach at a time; what only hinders hinders on every way.
                for target in gateways if cell.fault is not Kind.TIMEOUT else [number % len(gateways)]:
                    load.strike(Fault(pulse.at_s, cell.fault, target, pulse.for_s))
                await asyncio.sleep(pulse.for_s)
                continue
            weather = self.weather[cell.hop]
            self.fleet.lines.append(Line(time.monotonic(), f"{cell} for {pulse.for_s:.1f} s"))
            weather.worsen(cell.fault)
            try:
                await asyncio.sleep(pulse.for_s)
            finally:
                weather.clear(cell.fault)
            self.fleet.lines.append(Line(time.monotonic(), f"{cell} over"))


def _passed(weather: Iterable[Weather]) -> Passed:
    met = [(one.num_faults, one.proxy.num_cut, one.proxy.carried_bytes) for one in weather]
    return Passed(*(sum(column) for column in zip(*met, strict=True))) if met else Passed()
