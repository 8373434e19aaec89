"""`replyline chaos alerts`: each fault until its alert fires, before a real Prometheus and under a load."""

import asyncio
import random
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.measure.arrivals import schedule
from ops.measure.environment import environment
from ops.measure.runner import check_writable, write_json
from shared.errors import SettingsError
from tests.chaos.actors.load import Load, LoadFailed
from tests.chaos.drill_table import WITHIN_S, DrillReport, DrillRow, table
from tests.chaos.faults.menu import BY_KIND, MENU, Tool
from tests.chaos.faults.schedule import CLOCKS_OFF_S, GATEWAYS, MEMBERS, Fault, Kind
from tests.chaos.ledger.questions import make_questions
from tests.chaos.ledger.requests import Ledger
from tests.chaos.prometheus import Prometheus
from tests.chaos.run import PromiseBroken
from tests.chaos.strikes import Strikes, site
from tests.chaos.tools import lacking

_RATE: Final = 10.0
_CLIENTS: Final = 20
_BURST: Final = 8
_POLL_S: Final = 0.5
_QUIET_S: Final = 180.0
_BASELINE: Final = "replyline:questions:mean10m"
# A gateway's clock jumps a minute ahead; a worker's is a minute behind from the start. A gateway that was replaced has
# lost its clients to the other, and its clock is not seen.
_TARGETS: Final = {
    Kind.CLOCK_SKEW: CLOCKS_OFF_S.index(60.0) * MEMBERS,
    Kind.CLOCK_WRONG: CLOCKS_OFF_S.index(-60.0) * MEMBERS + GATEWAYS,
}
_AGAIN_S: Final = 0.5
_WARM_S: Final = 20.0
_MOST_S: Final = 2.0 * 3_600
# Redis is missed by whoever reads a history there. What is answered is not looked at here.
_SETTINGS: Final = {"WORKER__HISTORY_TURNS": "4"}
WAKING: Final = tuple(dish.kind for dish in MENU if dish.alert is not None)


@dataclass(frozen=True, slots=True, kw_only=True)
class DrillOptions:
    """`faults` as `--faults` has them; None: all that wake somebody."""

    seed: int
    faults: str | None
    json_path: Path | None

    def plan(self) -> tuple[Kind, ...]:
        """In the menu's order, but bursts last: what a surge is goes by the minutes before. Raises `SettingsError`."""
        names = None if self.faults is None else [name.strip() for name in self.faults.split(",") if name.strip()]
        wrong = [] if names is None else [name for name in names if name not in WAKING]
        if wrong or names == []:
            raise SettingsError(
                f"--faults {', '.join(wrong) or repr(self.faults)}: write faults that wake somebody, comma-separated: "
                f"{', '.join(WAKING)}"
            )
        kinds = [kind for kind in WAKING if names is None or kind in names]
        if (lacks := lacking(Tool.ALERTS)) is not None:
            raise SettingsError(f"Prometheus is {lacks}")
        check_writable(self.json_path)
        return tuple(sorted(kinds, key=lambda kind: kind is Kind.BURST))


async def run_drill(options: DrillOptions, console: Console) -> None:
    """Print the table. Raises `PromiseBroken` where an alert did not fire in time, `SettingsError`, `ServiceError`."""
    kinds = options.plan()
    facts = environment(engine="fake", broker="kafka")
    async with AsyncExitStack() as stack:
        grounds = stack.enter_context(site(kinds, brokers=1, settings=_SETTINGS))
        console.print("starting Kafka, Redis, two gateways, two workers and Prometheus")
        await grounds.fleet.start()
        prometheus = Prometheus(grounds.fleet.logs, grounds.fleet.addresses)
        stack.callback(prometheus.stop)
        await prometheus.start()
        load = _load(grounds.fleet.gateway_ports, options.seed, rate=_RATE, for_s=_MOST_S)
        loading = asyncio.create_task(asyncio.to_thread(load.run))
        try:
            await asyncio.to_thread(load.begun.wait)
            await asyncio.sleep(_WARM_S)
            drill = _Drill(Strikes(grounds, load, random.Random(options.seed)), prometheus, options.seed)
            rows = [await drill.run(kind, console) for kind in kinds]
        finally:
            load.stop()
            await asyncio.shield(loading)
        if load.failure is not None:
            raise LoadFailed(load.failure)
        await grounds.fleet.ready()
        found = DrillReport(holds=all(row.holds for row in rows), faults=rows, environment=facts)
        grounds.fleet.keep_logs = not found.holds
    print(table(found), flush=True)
    write_json(options.json_path, found)
    if not found.holds:
        silent = ",".join(row.fault for row in rows if not row.holds)
        raise PromiseBroken(
            f"not within {WITHIN_S:.0f} s: {silent}; the processes' logs: {grounds.fleet.logs}; "
            f"again: replyline chaos alerts --seed {options.seed} --faults {silent}"
        )


def _load(gateway_ports: Sequence[int], seed: int, *, rate: float, for_s: float) -> Load:
    count = round(rate * for_s)
    return Load(
        ledger=Ledger(),
        gateway_ports=gateway_ports,
        questions=make_questions(seed, count, _CLIENTS),
        times_s=schedule("poisson", rate=rate, count=count, seed=seed),
        seed=seed,
    )


@dataclass(slots=True)
class _Drill:
    strikes: Strikes
    prometheus: Prometheus
    seed: int

    async def run(self, kind: Kind, console: Console) -> DrillRow:
        """Begins when its alert is quiet; one that never is shows nothing. Raises `ServiceError`."""
        alert = BY_KIND[kind].alert
        assert alert is not None, "it wakes somebody"
        if kind is Kind.BURST:
            await self._used_to_the_load()
        before = await self._quiet(alert)
        if before is None:
            console.print(f"{kind}: {alert} fires without it", highlight=False)
            return DrillRow(fault=kind.value, alert=alert, fired_s=None, others={})
        over = asyncio.Event()
        lasting = asyncio.create_task(self._last(kind, over))
        fired = await self._watch(alert, before)
        over.set()
        await lasting
        await self.strikes.site.fleet.ready()
        row = DrillRow(fault=kind.value, alert=alert, fired_s=fired.pop(alert, None), others=fired)
        console.print(f"{kind}: {alert} {'not fired' if row.fired_s is None else f'after {row.fired_s} s'}; {fired}")
        return row

    async def _used_to_the_load(self) -> None:
        """What a surge is goes by the minutes before: until there are enough."""
        until_s = time.monotonic() + _QUIET_S
        while time.monotonic() < until_s:
            if await self.prometheus.knows(_BASELINE):
                return
            await asyncio.sleep(_POLL_S)

    async def _quiet(self, alert: str) -> set[str] | None:
        """What fires, when it does not any more; None: it goes on."""
        until_s = time.monotonic() + _QUIET_S
        while time.monotonic() < until_s:
            firing = await self.prometheus.firing()
            if firing is not None and alert not in firing:
                return firing
            await asyncio.sleep(_POLL_S)
        return None

    async def _watch(self, alert: str, before: set[str]) -> dict[str, float]:
        """What begins to fire, and after how many seconds, until it is this one or the time is up."""
        start_s, fired = time.monotonic(), dict[str, float]()
        while alert not in fired and (now_s := time.monotonic() - start_s) <= WITHIN_S:
            for name in sorted((await self.prometheus.firing() or set()) - before - fired.keys()):
                fired[name] = round(now_s, 1)
            await asyncio.sleep(_POLL_S)
        return fired

    async def _last(self, kind: Kind, over: asyncio.Event) -> None:
        """The fault for as long as its alert may take, or until it is `over` and all is up again; what is a matter of
        the moment comes again and again."""
        if kind is Kind.BURST:
            await self._burst(over)
        elif kind is Kind.REBALANCE:
            while not over.is_set():
                await self.strikes.carry_out(Fault(0.0, kind, 0, _AGAIN_S))
        else:
            struck = asyncio.create_task(self.strikes.carry_out(Fault(0.0, kind, _TARGETS.get(kind, 0), WITHIN_S)))
            await over.wait()
            self.strikes.relieve()
            await struck

    async def _burst(self, over: asyncio.Event) -> None:
        ports, rate = self.strikes.site.fleet.gateway_ports, (_BURST - 1) * _RATE
        load = _load(ports, self.seed + 1, rate=rate, for_s=WITHIN_S)
        loading = asyncio.create_task(asyncio.to_thread(load.run))
        await over.wait()
        load.stop()
        await loading
