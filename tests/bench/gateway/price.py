"""`replyline bench price`: what tokens and resume cost.

The engine takes no time, so what is left is the path's own work, through Apache Kafka, a gateway and a worker. Two
gateways stand side by side before one worker: one that asks for tokens, counts its subjects' requests in Redis and
gives cursors, as it ships; one that lets anybody in and gives none (`tests.bench.gateway.unresumable`). They are asked
in turn, one question at a time, so that the two of a pair are milliseconds apart and what else the machine does hits
both alike; and both are started anew a few times, so that no figure is one process's luck."""

import asyncio
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console

from ops.load.connection import ChatConnection
from ops.load.figures.outcome import Outcome
from ops.load.system import System
from ops.measure.environment import environment
from ops.measure.interval import Interval, paired
from ops.measure.quantiles import median
from ops.measure.runner import Cell, check_writable, markdown, progress_bar, verdict, write_json
from ops.measure.usage import process_cpu_s
from ops.operate.token import mint_token
from ops.stack.processes import Child, ServiceError
from ops.texts.prompts import question
from shared.process.clock import now_unix_ms
from shared.settings import Settings
from shared.settings.auth import AuthSettings
from shared.wire.messages import ResponseCreate, SessionStart

MOST_P50: Final = 1.15
# A subject may ask 120 times a minute, and all take turns.
_CONNECTIONS: Final = 160
_ENV: Final = {"WORKER__ENGINE": "fake", "WORKER__PREFILL_CHUNK_TOKENS": "65536"}
_QUESTION_WORDS: Final = 8
_ANSWER_TOKENS: Final = 8
_TOKEN_S: Final = 3_600


class Turn(Struct, frozen=True, kw_only=True):
    """Of one gateway in one round: the median of its answers end to end, in ms, and its own CPU ms for one of them."""

    promised: bool
    p50_ms: float
    cpu_ms: float


class Price(Struct, frozen=True, kw_only=True):
    """With tokens and resume over without, in the same round."""

    p50: Interval
    cpu: Interval


@dataclass(frozen=True, slots=True)
class PriceOptions:
    """`starts` times both gateways are started, and each time asked in `rounds` of `questions`, beside a first one that
    warms up and does not count."""

    starts: int
    rounds: int
    questions: int
    json_path: Path | None


async def bench_price(settings: Settings, options: PriceOptions, console: Console) -> None:
    """Raises `ServiceError`, `SettingsError`, `ConnectFailed`."""
    check_writable(options.json_path)
    facts = environment(engine="fake, no latency", broker="kafka")
    console.print("starting Apache Kafka, Redis, a worker and two gateways")
    measured: list[Turn] = []
    failed = 0
    with System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        await system.start_worker()
        with progress_bar(console, "rounds", options.starts * options.rounds) as progress:
            for start in range(options.starts):
                doors = [await _open(system, promised=promised) for promised in (start % 2 == 0, start % 2 == 1)]
                await _round(doors, options.questions)
                for number in range(options.rounds):
                    measured += await _round(doors, options.questions)
                    progress(start * options.rounds + number + 1)
                for door in doors:
                    failed += door.num_failed
                    door.close()
                    system.end(door.gateway)
    found = price(measured)
    _print(measured, found, failed)
    write_json(options.json_path, {"price": found, "failed": failed, "turns": measured, "environment": facts})


@dataclass(slots=True)
class _Door:
    """A gateway, and its clients, who ask one after the other. `num_failed` answers were not the model's."""

    gateway: Child
    promised: bool
    num_failed: int = 0
    _connections: list[ChatConnection] = field(default_factory=list)
    _numbers: "count[int]" = field(default_factory=count)
    _settled: asyncio.Event = field(default_factory=asyncio.Event)
    _deadline_ms: int = 0

    async def open(self, url: str, tokens: Sequence[str | None]) -> None:
        """Raises `ConnectFailed`."""
        for token in tokens:
            connection = ChatConnection(lambda _connection, _outcome: self._settled.set())
            self._connections.append(connection)
            session = await connection.open(url, SessionStart(token=token))
            self._deadline_ms = session.limits.deadline_ms

    async def ask(self) -> float:
        """How long the answer took, in ms. Raises `ServiceError` where none came."""
        number, now_s = next(self._numbers), time.monotonic()
        outcome = Outcome(scheduled_s=now_s, deadline_ms=self._deadline_ms)
        request = ResponseCreate(
            event_id=f"price-{number}",
            input=question(_QUESTION_WORDS, number),
            max_output_tokens=_ANSWER_TOKENS,
            temperature=0.0,
        )
        self._settled.clear()
        self._connections[number % len(self._connections)].ask(request, outcome, now_s)
        await self._settled.wait()
        self.num_failed += not outcome.by_model
        if outcome.e2e_ms is None:
            raise ServiceError(f"a question was refused ({outcome.error}); ask less in a minute: lower --questions")
        return outcome.e2e_ms

    def close(self) -> None:
        for connection in self._connections:
            connection.close()


async def _open(system: System, *, promised: bool) -> _Door:
    """A gateway with tokens and cursors, or with neither."""
    partition = {"GATEWAY__REPLY_PARTITION": str(int(promised))}
    tokens: list[str | None] = [None] * _CONNECTIONS
    if promised:
        secret = secrets.token_hex(32)
        system.env = {**_ENV, **partition, "AUTH__MODE": "token", "AUTH__SECRET": secret}
        auth, now = AuthSettings(mode="token", secret=secret), now_unix_ms()
        tokens = [
            mint_token(auth, tenant="shop", subject=f"customer-{number}", ttl_s=_TOKEN_S, now_unix_ms=now)
            for number in range(_CONNECTIONS)
        ]
        gateway, url = await system.start_gateway()
    else:
        system.env = {**_ENV, **partition}
        gateway, url = await system.start_gateway(module="tests.bench.gateway.unresumable")
    door = _Door(gateway, promised)
    await door.open(url, tokens)
    return door


async def _round(doors: Sequence[_Door], questions: int) -> list[Turn]:
    """Of each door. Who was asked second is asked first the next time. Raises `ServiceError`."""
    took_ms: dict[bool, list[float]] = {door.promised: [] for door in doors}
    used_s = {door.promised: process_cpu_s(door.gateway.process.pid) for door in doors}
    for number in range(questions):
        for door in doors if number % 2 else reversed(doors):
            took_ms[door.promised].append(await door.ask())
    return [
        Turn(
            promised=door.promised,
            p50_ms=round(median(took_ms[door.promised]), 4),
            cpu_ms=round(
                (process_cpu_s(door.gateway.process.pid) - used_s[door.promised]) * 1_000 / questions, 4
            ),
        )
        for door in doors
    ]  # fmt: skip


def price(measured: Sequence[Turn]) -> Price:
    """Turns of either kind are in the order of the rounds. Raises ValueError where one is without its other."""
    with_both, with_neither = _halves(measured)
    return Price(
        p50=paired([one.p50_ms for one in with_both], [one.p50_ms for one in with_neither]),
        cpu=paired([one.cpu_ms for one in with_both], [one.cpu_ms for one in with_neither]),
    )


def _halves(measured: Sequence[Turn]) -> tuple[list[Turn], list[Turn]]:
    return [one for one in measured if one.promised], [one for one in measured if not one.promised]


def _print(measured: Sequence[Turn], found: Price, failed: int) -> None:
    with_both, with_neither = _halves(measured)

    def line(name: str, turns: Sequence[Turn]) -> list[Cell]:
        p50_ms, cpu_ms = median([one.p50_ms for one in turns]), median([one.cpu_ms for one in turns])
        return [name, len(turns), round(p50_ms, 3), round(cpu_ms, 3)]

    rows = [
        [*line("neither", with_neither), None, None, ""],
        [
            *line("tokens and resume", with_both),
            str(found.p50),
            str(found.cpu),
            verdict(round(found.p50.value, 3), MOST_P50),
        ],
    ]
    header = (
        "",
        "rounds",
        "p50 ms",
        "gateway's CPU ms",
        "p50 of neither (95 %)",
        "CPU of neither (95 %)",
        "target p50",
    )
    print(markdown(header, rows))
    print(f"answers that were not the model's: {failed}")
