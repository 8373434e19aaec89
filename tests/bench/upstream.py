"""`replyline bench upstream`: a llama-server by itself, and the same one behind Replyline, under the same load.

At 1x as many clients as llama-server has slots ask in turn, each after its answer: that is its capacity. At 3x and 10x
questions arrive evenly at that multiple of the capacity, independent of the answers. An answer must be complete by a
deadline, which is the timeout of a direct client of llama-server. Both receive the same prompts, without FAQ entries; a
cell asks one and then the other. In the last cell questions arrive at 1x, and the llama-server is killed and started
again in the middle, behind Replyline the worker too.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import Planned, plan_of
from ops.lab.load.bench import connections_for, faq_questions, open_files, texts_of
from ops.measure.arrivals import schedule
from ops.stack.processes import Child, ServiceError
from ops.stack.system import System
from shared.settings import Settings
from shared.wire.messages import Limits
from shared.wire.outcome import BY_MODEL
from tests.bench.cell import Bench, Figures, Target, middle, standing
from tests.support.servers.llama_server import LlamaServer
from workers.engine import Sampling
from workers.engine.upstream.body import ChatMessage, chat_body
from workers.engine.upstream.events import Events
from workers.engine.upstream.failures import UpstreamFailure

FULL: Final = "1x"
KILLED: Final = "1x, killed"
LOADS: Final = {"3x": 3, "10x": 10}
TARGETS: Final = (
    Target(cell=FULL, figure="first_text_more_ms", value=10.0),
    Target(cell="3x", figure="in_time_ratio", value=3.0, at_least=True),
    *(Target(cell=cell, figure="behind errors", value=0.0) for cell in (FULL, *LOADS, KILLED)),
)
_SYSTEM: Final = "You are a friendly support agent of an online shop. Answer in one or two sentences."
_WARMUP_PER_SLOT: Final = 4
_CAPACITY_PER_SLOT: Final = 8
_DEADLINE: Final = 2.5
_PATIENCE_MS: Final = 60_000
_LATE_MS: Final = 250.0  # a gateway answers at the deadline itself


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamOptions:
    server: Path
    slots: int
    seconds: float
    deadline_ms: int | None
    max_output_tokens: int


async def bench_upstream(settings: Settings, bench: Bench, options: UpstreamOptions, console: Console) -> None:
    """Raises `ServiceError`, `ConnectFailed`."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(LlamaServer(program=options.server, slots=options.slots))
        sides = await stack.enter_async_context(_standing(settings, options, server))
        await sides.gateway_in_turn(_WARMUP_PER_SLOT * options.slots, seed=-1)
        capacity = await sides.capacity()
        alone = f"llama-server alone: {capacity:.2f} answers/s, {options.slots} at a time"
        console.print(f"{alone}; deadline: {sides.deadline_ms} ms", highlight=False)
        cells = [standing(FULL, partial(sides.in_turn, capacity))]
        cells += [standing(name, partial(sides.at_rate, capacity * load, False)) for name, load in LOADS.items()]
        cells.append(standing(KILLED, partial(sides.at_rate, capacity, True)))
        await bench.run(cells, console, capacity_per_s=capacity, deadline_ms=sides.deadline_ms, slots=options.slots)


@asynccontextmanager
async def _standing(settings: Settings, options: UpstreamOptions, server: LlamaServer) -> AsyncIterator["_Sides"]:
    env = {
        "WORKER__ENGINE": "upstream",
        "UPSTREAM__URL": server.url,
        "WORKER__SLOTS": str(options.slots),
        "WORKER__MAX_LENGTH": str(server.length),
        "WORKER__SYSTEM_PROMPT": _SYSTEM,
        "WORKER__GROUNDING_ENTRIES": "0",
        "WORKER__HISTORY_TURNS": "0",
        "PROMISE__FIRST_TOKEN_MS": str(_PATIENCE_MS),
        "PROMISE__DEADLINE_MS": str(_PATIENCE_MS),
        "PROMISE__MAX_DEADLINE_MS": str(_PATIENCE_MS),
    }
    with System(settings=settings, broker="embedded", env=env) as system:
        await system.start_services()
        _, url = await system.start_gateway()
        worker, _ = await system.start_worker()
        yield _Sides(settings, options, server, system, url, worker, _PATIENCE_MS)


@dataclass(slots=True)
class _Sides:
    """The llama-server, and the system in front of it."""

    settings: Settings
    options: UpstreamOptions
    server: LlamaServer
    system: System
    url: str
    worker: Child
    deadline_ms: int

    async def capacity(self) -> float:
        """Return the answers per second of the llama-server alone with all slots busy, and set the deadline: the
        configured one, or a multiple of such an answer's time. Raises `ServiceError`."""
        begun_s = time.monotonic()
        outcomes = await self.server_in_turn(_CAPACITY_PER_SLOT * self.options.slots, seed=-2)
        done = sum(each.done_s is not None for each in outcomes)
        if not done:
            raise ServiceError("llama-server answered nothing; give fewer --slots or --max-output-tokens")
        capacity = done / (time.monotonic() - begun_s)
        self.deadline_ms = self.options.deadline_ms or round(_DEADLINE * self.options.slots / capacity * 1_000)
        return capacity

    async def in_turn(self, capacity: float, number: int) -> Figures:
        """As many clients as slots ask the one and then the other; in another order in every round."""
        count, found = max(1, round(capacity * self.options.seconds)), dict[str, Figures]()
        for side in _in_turn(number):
            ask = self.server_in_turn if side == "alone" else self.gateway_in_turn
            found[side] = figures_of(await ask(count, seed=number))
        return compared(found["alone"], found["behind"])

    async def at_rate(self, rate: float, kills: bool, number: int) -> Figures:
        """Send questions at this rate to one and then to the other, independent of the answers."""
        times = schedule("even", rate=rate, count=max(1, round(rate * self.options.seconds)))
        found: dict[str, Figures] = {}
        for side in _in_turn(number):
            ask, kill = (self.by_server, self._kill_server) if side == "alone" else (self.by_gateway, self._kill_both)
            killing = asyncio.ensure_future(kill()) if kills else None
            found[side] = figures_of(await ask(times, seed=number))
            if killing is not None:
                await killing
        return compared(found["alone"], found["behind"])

    async def server_in_turn(self, count: int, *, seed: int) -> list[Outcome]:
        texts, outcomes = iter(self._texts(count, seed=seed)), list[Outcome]()

        async def ask_in_turn() -> None:
            for text in texts:
                outcomes.append(Outcome(scheduled_s=time.monotonic(), deadline_ms=self.deadline_ms))
                await ask_server(self.server, text, self.options.max_output_tokens, outcomes[-1])

        await asyncio.gather(*(ask_in_turn() for _ in range(self.options.slots)))
        return outcomes

    async def gateway_in_turn(self, count: int, *, seed: int) -> list[Outcome]:
        load = LoadRun(self.url, connections=self.options.slots)
        return await load.run(self._plan(count, await load.look(), seed=seed), clients=self.options.slots)

    async def by_server(self, times: Sequence[float], *, seed: int) -> list[Outcome]:
        """Ask the llama-server directly, at these times."""
        start_s = time.monotonic() + 0.1
        outcomes = [Outcome(scheduled_s=start_s + at_s, deadline_ms=self.deadline_ms) for at_s in times]

        async def ask(outcome: Outcome, text: str) -> None:
            await asyncio.sleep(outcome.scheduled_s - time.monotonic())
            await ask_server(self.server, text, self.options.max_output_tokens, outcome)

        await asyncio.gather(*map(ask, outcomes, self._texts(len(times), seed=seed)))
        return outcomes

    async def by_gateway(self, times: Sequence[float], *, seed: int) -> list[Outcome]:
        """Ask the gateway, at these times."""
        load = LoadRun(self.url)
        limits, rate = await load.look(), len(times) / (times[-1] or 1.0)
        connections = connections_for(rate, self.deadline_ms, len(times), limits)
        open_files(connections)
        plan = self._plan(len(times), limits, seed=seed, times=times)
        return await LoadRun(self.url, connections=connections, max_inflight=limits.max_inflight).run(plan)

    def _plan(
        self, count: int, limits: Limits, *, seed: int, times: Sequence[float] | None = None
    ) -> Sequence[Planned]:
        most, deadline_ms = self.options.max_output_tokens, self.deadline_ms
        texts = self._texts(count, seed=seed)
        return plan_of(texts, limits, max_output_tokens=most, deadline_ms=deadline_ms, times=times)

    def _texts(self, count: int, *, seed: int) -> list[str]:
        return texts_of(count, 1_000 * (seed + 2), faq_questions(self.settings.faq.path), mix=None)

    async def _kill_server(self) -> None:
        """Kill it in the first third of the load, and restart it immediately."""
        await asyncio.sleep(self.options.seconds / 3)
        self.server.kill()
        await self.server.start()

    async def _kill_both(self) -> None:
        """Kill the llama-server, and later the worker."""
        await self._kill_server()
        await asyncio.sleep(self.options.seconds / 3)
        self.worker.kill()
        self.system.end(self.worker)
        self.worker, _ = await self.system.start_worker()


def _in_turn(number: int) -> Sequence[str]:
    return ("alone", "behind") if number % 2 == 0 else ("behind", "alone")


async def ask_server(server: LlamaServer, text: str, max_tokens: int, outcome: Outcome) -> None:
    """Ask a llama-server directly, and wait no longer than the deadline. What it sends is read as a worker reads it."""
    messages = [ChatMessage("system", _SYSTEM), ChatMessage("user", text)]
    body = chat_body(model="", messages=messages, max_tokens=max_tokens, sampling=Sampling())
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: peer\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    writer: asyncio.StreamWriter | None = None
    try:
        left_s = outcome.scheduled_s + outcome.deadline_ms / 1_000 - time.monotonic()
        async with asyncio.timeout(left_s):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(head.encode() + body)
            events = Events()
            while not events.done:
                data = await reader.read(65_536)
                if not data:
                    outcome.error = "broken off"
                    return
                for piece in events.feed(data):
                    if piece.text:
                        outcome.wrote(time.monotonic())
            outcome.done_s, outcome.source, outcome.status = time.monotonic(), "model", "completed"
    except TimeoutError:
        outcome.error = "timeout"
    except (OSError, UpstreamFailure) as error:
        outcome.error = type(error).__name__
    finally:
        if writer is not None:
            writer.close()


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Return how many were asked, how many had the model's whole answer in time, any answer in time, and an error or
    none at all; and the median first text of the model's."""
    within = [each for each in outcomes if each.e2e_ms is not None and each.e2e_ms <= each.deadline_ms + _LATE_MS]
    return {
        "asked": len(outcomes),
        "model_in_time": sum(each.good for each in outcomes),
        "any_in_time": sum(each.status != "failed" for each in within),
        "errors": sum(each.done_s is None or each.status == "failed" for each in outcomes),
        "first_text_p50_ms": middle(each.ttft_ms for each in outcomes if each.source in BY_MODEL),
    }


def compared(alone: Mapping[str, float | None], behind: Mapping[str, float | None]) -> Figures:
    """Return both sides' figures, what the first text takes more behind, and how many times as many answers of the
    model's are in time there: of at least one alone, as none has no multiple."""
    figures: dict[str, float | None] = {}
    for name in alone:
        figures |= {f"alone {name}": alone[name], f"behind {name}": behind[name]}
    first, later = alone["first_text_p50_ms"], behind["first_text_p50_ms"]
    figures["first_text_more_ms"] = None if first is None or later is None else later - first
    figures["in_time_ratio"] = (behind["model_in_time"] or 0) / max(alone["model_in_time"] or 0, 1)
    return figures
