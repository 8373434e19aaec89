"""Run a drill: ask the fleet questions all the time, cause each fault, and stop if customers would be harmed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import plan_of
from ops.lab.drill.faults import check, made
from ops.lab.drill.figures import FaultRow, fault_row, is_settled, recovered_s, share_well, too_bad
from ops.lab.drill.schedule import Fault, Schedule, said, wait_s
from ops.lab.load.bench import connections_for, faq_questions, texts_of
from ops.measure.arrivals import schedule as arrivals
from shared.errors import SettingsError
from shared.process.clock import now_unix_ms

_LOOK_S: Final = 0.25
_MAX_OUTPUT_TOKENS: Final = 64

Tell = Callable[[str], None]


async def run_drill(schedule: Schedule, token: str | None, seed: int, tell: Tell) -> list[FaultRow]:
    """Run the drill and return a row per fault. The last row is that of the fault at which the drill had to stop, if
    any. Raises `ConnectFailed`, `SettingsError`."""
    for fault in schedule.drill:
        check(fault)
        wait_s(fault, now_unix_ms())
    rows: list[FaultRow] = []
    for number, fault in enumerate(schedule.drill):
        left_s = max(0.0, wait_s(fault, now_unix_ms()) - schedule.calm_s) if fault.at is not None else 0.0
        if left_s:
            tell(f"{said(fault)}: in {left_s + schedule.calm_s:,.0f} s")
            await asyncio.sleep(left_s)
        rows.append(await _one(schedule, fault, token, seed + number, tell))
        if rows[-1].stopped is not None:
            break
    return rows


async def _one(schedule: Schedule, fault: Fault, token: str | None, seed: int, tell: Tell) -> FaultRow:
    whole_s = schedule.calm_s + fault.seconds + schedule.recover_s
    count = max(1, round(schedule.rate * whole_s))
    limits = await LoadRun(schedule.url, token=token).look()
    load = LoadRun(
        schedule.url,
        token=token,
        name="drill",
        connections=connections_for(schedule.rate, limits.deadline_ms, count, limits),
        max_inflight=limits.max_inflight,
    )
    plan = plan_of(
        texts_of(count, seed, faq_questions(None), mix=None),
        limits,
        max_output_tokens=_MAX_OUTPUT_TOKENS,
        times=arrivals("poisson", rate=schedule.rate, count=count, seed=seed),
    )
    asking = asyncio.ensure_future(load.run(plan))
    try:
        return await _around(schedule, fault, _QuestionsInDrill(load, asking, limits.first_token_ms), tell)
    finally:
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class _QuestionsInDrill:
    """The questions asked while faults are caused. `first_token_ms` is the gateway's promise."""

    load: LoadRun
    task: "asyncio.Task[list[Outcome]]"
    first_token_ms: float

    async def until(self, at_s: float) -> None:
        """Wait until that time. Raises the error that ended the questions early, such as `ConnectFailed`."""
        await asyncio.wait([self.task], timeout=max(0.0, at_s - time.monotonic()))
        if self.task.done() and self.task.exception() is not None:
            self.task.result()

    async def settled(self) -> Sequence[Outcome]:
        """Return the questions asked so far, once each has its answer or is late."""
        asked = self.asked
        while not self.task.done() and not all(is_settled(one, time.monotonic()) for one in asked):
            await self.until(time.monotonic() + _LOOK_S)
        return asked

    @property
    def asked(self) -> list[Outcome]:
        """Return the questions that were due so far."""
        now_s = time.monotonic()
        return [one for one in self.load.outcomes if one.scheduled_s <= now_s]


async def _around(schedule: Schedule, fault: Fault, asking: _QuestionsInDrill, tell: Tell) -> FaultRow:
    await asking.until(time.monotonic() + schedule.calm_s)
    begun_s, promised_ms = time.monotonic(), asking.first_token_ms
    calm = share_well([one for one in asking.asked if is_settled(one, begun_s)], promised_ms)
    if calm < schedule.well:
        raise SettingsError(
            f"{said(fault)}: not caused: before it the workers answer only {calm:.0%} in time, {schedule.well:.0%} are "
            "required; see: replyline diagnose"
        )
    tell(f"{said(fault)}: begins")
    stopped: str | None = None
    async with made(fault):
        until_s = begun_s + fault.seconds
        while stopped is None and time.monotonic() < until_s:
            await asking.until(min(until_s, time.monotonic() + _LOOK_S))
            stopped = too_bad(asking.asked, schedule.least, time.monotonic())
    ended_s = time.monotonic()
    tell(f"{said(fault)}: {'ends' if stopped is None else stopped}")
    while not asking.task.done() and time.monotonic() < ended_s + schedule.recover_s:
        await asking.until(time.monotonic() + _LOOK_S)
        if recovered_s(asking.asked, ended_s, schedule.well, promised_ms) is not None:
            break
    return fault_row(
        fault.name or said(fault),
        await asking.settled(),
        (begun_s, ended_s),
        well=schedule.well,
        first_token_ms=promised_ms,
        stopped=stopped,
    )
