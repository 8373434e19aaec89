"""`replyline chaos run`: the load and the faults together, then the verdict."""

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Final, NoReturn

from rich.console import Console

from ops.measure.arrivals import schedule
from ops.measure.environment import environment
from ops.measure.runner import write_json
from shared.conversation.turn import Turn
from shared.errors import ReplylineError, SettingsError
from shared.nouns import counted
from tests.chaos.actors.fleet import Fleet
from tests.chaos.actors.load import Load, LoadFailed
from tests.chaos.faults.schedule import (
    INSIDE,
    VERSIONS,
    Fault,
    Kind,
    Strike,
    counts_for,
    draw,
    groups,
    parse_faults,
    with_bursts,
)
from tests.chaos.ledger.questions import make_questions
from tests.chaos.ledger.recorded import Times, read_recorded, redis_away, watch_turns
from tests.chaos.ledger.requests import Breach, Ledger, Line, conversation_of
from tests.chaos.ledger.shipped import Shipped, speakers_of
from tests.chaos.ledger.story import story
from tests.chaos.ledger.verdict import Verdict, judge
from tests.chaos.strikes import OF_THE_LOAD, Strikes, fleet_for
from tests.chaos.table import Conditions, FaultRow, report, tables

BROKERS: Final = (1, 3)
# These wait for no other.
_AT_ITS_TIME: Final = OF_THE_LOAD | {Kind.NOISE, *INSIDE}
_MOST_STORIES: Final = 5


class PromiseBroken(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "promise_broken"


class PromiseLate(PromiseBroken):
    """The only breach is that terminal events came too late."""

    code = "promise_late"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosOptions:
    """Options of a run. `faults` has the format of `--faults`; None: the default counts for the minutes."""

    seed: int
    minutes: float
    rate: float
    clients: int
    brokers: int
    faults: str | None
    json_path: Path | None

    @property
    def duration_s(self) -> float:
        return self.minutes * 60

    @property
    def command(self) -> str:
        """Return the command that repeats the same faults."""
        given = {
            "--seed": self.seed,
            "--minutes": f"{self.minutes:g}",
            "--rate": f"{self.rate:g}",
            "--clients": self.clients,
            "--brokers": self.brokers,
            "--faults": self.faults,
        }
        return " ".join(
            ["replyline chaos run", *(f"{name} {value}" for name, value in given.items() if value is not None)]
        )

    def plan(self) -> list[Fault]:
        """Raises `SettingsError`, one line a fault."""
        if self.brokers not in BROKERS:
            raise SettingsError(f"--brokers {self.brokers}: must be 1 or 3")
        counts = counts_for(self.minutes, brokers=self.brokers) if self.faults is None else parse_faults(self.faults)
        wrong = [
            f"--faults {kind} with --brokers {self.brokers}: the proxies stand before one broker; leave out --brokers"
            for kind in INSIDE
            if self.brokers > 1 and counts[kind]
        ]
        if counts[Kind.ZONE] and self.brokers == 1:
            wrong.append(f"--faults {Kind.ZONE} with --brokers 1: each zone has a broker; use --brokers 3")
        if wrong:
            raise SettingsError("\n".join(wrong))
        return draw(self.seed, self.duration_s, counts, groups(clients=self.clients, brokers=self.brokers))


async def run_chaos(options: ChaosOptions, console: Console) -> None:
    """Print the tables and, if a promise was broken, each story. Raises `PromiseBroken`, `SettingsError`,
    `ServiceError`."""
    faults = options.plan()
    versions = any(fault.kind in VERSIONS for fault in faults)
    loses_turns = any(fault.kind in {Kind.REDIS, *INSIDE} for fault in faults)
    ledger, count = Ledger(versions=versions or loses_turns), round(options.rate * options.duration_s)
    with fleet_for({fault.kind for fault in faults}, brokers=options.brokers) as fleet:
        console.print("starting Kafka, Redis, two gateways and two workers")
        await fleet.start()
        times_s = schedule("poisson", rate=options.rate, count=count, seed=options.seed)
        times_s = with_bursts(times_s, faults, rate=options.rate, seed=options.seed)
        load = Load(
            ledger=ledger,
            gateway_ports=fleet.gateway_ports,
            questions=make_questions(options.seed, len(times_s), options.clients),
            times_s=times_s,
            seed=options.seed,
        )
        facts = environment(engine="fake", broker="kafka")
        strikes = Strikes(fleet, load, random.Random(f"{options.seed}/noise"))
        kept: dict[str, list[Turn]] = defaultdict(list)
        sessions = {conversation_of(question.session) for question in load.questions}
        ended = asyncio.Event()
        watching = asyncio.create_task(watch_turns(fleet.redis_url, sessions, kept, ended))
        try:
            await _together(strikes, load, faults, console)
            await fleet.ready()
        finally:
            ended.set()
            await watching
        recorded = await read_recorded(fleet.kafka_settings, kept, _redis_away(fleet))
        rights = Shipped(ledger, recorded, speakers_of(fleet.worker_settings, fleet.revisions))
        verdict = await asyncio.to_thread(judge, ledger, rights)
        fleet.keep_logs = not verdict.holds
        conditions = Conditions(
            seed=options.seed,
            minutes=options.minutes,
            rate=options.rate,
            clients=options.clients,
            brokers=options.brokers,
            silence_s=round(_silence_s(ledger, load), 3),
            client_lag_s=round(load.lag_s, 4),
            environment=facts,
        )
        rows = _rows(fleet.strikes, faults, load.start_s + options.duration_s)
        found = report(
            verdict, rows, conditions, await strikes.met() | {"answers that lack earlier turns": rights.num_short}
        )
        print(tables(found), flush=True)
        write_json(options.json_path, found)
        if not verdict.holds:
            tell(verdict, ledger, strikes.lines, load.start_s, fleet.logs, options.command)
        await fleet.ready()


async def _together(strikes: Strikes, load: Load, faults: Sequence[Fault], console: Console) -> None:
    """Returns when the load has ended and all that was killed is up again. Raises `LoadFailed`, `ServiceError`."""
    loading = asyncio.create_task(asyncio.to_thread(load.run))
    try:
        await asyncio.to_thread(load.begun.wait)
        console.print(f"{len(load.questions)} requests, {len(faults)} faults")
        async with asyncio.TaskGroup() as group:
            for fault in faults:
                await asyncio.sleep(max(0.0, load.start_s + fault.at_s - time.monotonic()))
                if load.failure is not None:
                    break
                group.create_task(strikes.carry_out(fault))
        await loading
    except ExceptionGroup as group_error:
        first = group_error.exceptions[0]
        raise (first if isinstance(first, ReplylineError) else group_error) from None
    finally:
        load.stop()
        await asyncio.shield(loading)
    if load.failure is not None:
        raise LoadFailed(load.failure)


def _redis_away(fleet: Fleet) -> list[Times]:
    """Return when Redis was killed, or away from a process by its log."""
    to_unix_s = time.time() - time.monotonic()
    killed = [strike for strike in fleet.strikes if strike.kind is Kind.REDIS]
    times = [((each.at_s + to_unix_s) * 1_000, (each.at_s + each.back_s + to_unix_s) * 1_000) for each in killed]
    return times + [each for log in fleet.logs.glob("*.log") for each in redis_away(log.read_text(errors="replace"))]


def _silence_s(ledger: Ledger, load: Load) -> float:
    last_s = load.start_s + load.times_s[-1]
    ends = sorted(end[0] for page in ledger.pages.values() for end in page.ends)
    times = [load.start_s, *(at_s for at_s in ends if at_s < last_s), last_s]
    return max((later - sooner for sooner, later in pairwise(times)), default=0.0)


def _rows(strikes: Sequence[Strike], faults: Iterable[Fault], load_end_s: float) -> list[FaultRow]:
    """What had to wait for its turn until there was no load any more has shown nothing, and does not count."""
    struck = [strike.kind for strike in strikes if strike.at_s < load_end_s]
    planned: list[Kind] = [fault.kind for fault in faults if fault.kind in _AT_ITS_TIME]
    rows: list[FaultRow] = []
    for kind in Kind:
        times = [strike.back_s for strike in strikes if strike.kind is kind]
        rows.append(
            FaultRow(
                kind=kind.value,
                count=struck.count(kind) + planned.count(kind),
                back_s=round(max(times), 2) if times else None,
            )
        )
    return rows


def tell(
    verdict: Verdict, ledger: Ledger, system: Sequence[Line], start_s: float, logs: Path, command: str
) -> NoReturn:
    """Print the stories, then raise `PromiseBroken`, or `PromiseLate` if lateness is the only breach."""
    tell_stories(verdict, ledger, system, start_s)
    broken = sum(verdict.count(breach) > 0 for breach in Breach)
    found = (
        f"{counted(broken, 'invariant does', 'invariants do')} not hold, of {counted(len(verdict.guilty), 'request')}"
    )
    kind = PromiseLate if verdict.is_only_late else PromiseBroken
    raise kind(f"{found if broken else 'no request was accepted'}; the processes' logs: {logs}; again: {command}")


def tell_stories(verdict: Verdict, ledger: Ledger, system: Sequence[Line], start_s: float) -> None:
    """Print the breaches, and the stories of the first requests concerned."""
    for breach, pages in verdict.broken.items():
        for page, what in pages[:_MOST_STORIES]:
            print(f"{page.question.event_id}: {breach.value}: {what}")
    for stray in ledger.strays[:_MOST_STORIES]:
        print(f"{stray.at_s - start_s:.3f} {stray.what}")
    for page in verdict.guilty[:_MOST_STORIES]:
        print(f"\n{story(ledger, page, system, start_s)}")
