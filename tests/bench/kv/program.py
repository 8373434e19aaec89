"""`replyline bench kv`: the benefit of the conversations' kept keys and values (KV).

Two complete systems on embedded Kafka run next to each other, one with the cache off, each with a separate Redis;
conversations in English and Chinese, greedy, with deadlines so long that nothing is cut. The bench runs whole
conversations at many clients, compared with a llama-server if one is given; and turn 5 at some 1,000 tokens of context,
from each level of the cache.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from rich.console import Console

from ops.stack.embedded import EmbeddedRedis
from ops.stack.processes import Child, ServiceError
from ops.stack.system import System
from shared.errors import SettingsError
from shared.faq import FaqIndex
from shared.settings import Settings
from tests.bench.cell import FAILED, Bench, Cell, Figures, Measure, Measured, Target, middle, standing
from tests.bench.kv.client import DEADLINE_MS, Answered, Talk, converse_all
from tests.bench.kv.conversations import Conversation, choose, load_conversations
from tests.bench.kv.peer import converse_the_same, converse_with_peer, grounded_system_text
from tests.bench.kv.prompts import Asked, Prompts
from tests.bench.llama_client import peer_at, reach_peer
from tests.bench.process import check_engine

ON: Final = "cache on"
OFF: Final = "cache off"
SAME: Final = "llama-server, our prompts"
PEER: Final = "llama-server, its own"
RECOMPUTED: Final = "turn 5 recomputed"
LEVELS: Final = ("turn 5 from the slot", "turn 5 from host memory", "turn 5 from Redis")
KINDS: Final = ("whole", "ttft")
TARGETS: Final = (
    Target(cell=ON, figure="answers_per_s", base=OFF, value=2.2, at_least=True),
    Target(cell=ON, figure="computed_tokens", base=OFF, value=0.35),
    Target(cell=ON, figure="answers_per_s", base=SAME, value=2.2, at_least=True),
    Target(cell=ON, figure="answers_per_s", base=PEER, value=2.0, at_least=True),
    *(
        Target(cell=level, figure="ttft_ms", base=RECOMPUTED, value=value)
        for level, value in zip(LEVELS, (0.12, 0.13, 0.22), strict=True)
    ),
)
_REDIS_MB: Final = 4_096  # nothing is evicted while it is measured
_HOST_MIB: Final = "1024"
_TURN: Final = 5
_AT_TURN_5: Final = 2  # conversations a round
_LEADING_TOKENS: Final = 144  # of each answer before: turn 5 comes at about 1,000 tokens
_ANSWER_TOKENS: Final = 16
_PAUSE_S: Final = 0.2  # a customer reads before writing: an answer's KV has to be stored for this long
_STORED_S: Final = 2.0
_WARMUP_TOKENS: Final = 4
_WARMUP: Final = Conversation(
    id="warm-up",
    language="en",
    turns=("Good morning, is somebody there?", "Which of your shops is the nearest to Lund?", "Thank you, goodbye."),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KvOptions:
    """`conversations` are those of all rounds; `clients` run in parallel, each in a separate slot."""

    conversations: int
    clients: int
    max_output_tokens: int
    kinds: tuple[str, ...]
    peer: str | None

    def check(self, rounds: int) -> None:
        """Raises `SettingsError`, one line a fault."""
        faults = [f"--cells {name}: write some of {','.join(KINDS)}" for name in self.kinds if name not in KINDS]
        if not self.kinds:
            faults.append(f"--cells: name some of {', '.join(KINDS)}, comma-separated")
        if rounds > self.conversations:
            faults.append(f"--rounds {rounds}: is above --conversations {self.conversations}")
        if self.peer is not None and "whole" not in self.kinds:
            faults.append(f"--peer {self.peer}: is asked in the cell whole; name it in --cells")
        if faults:
            raise SettingsError("\n".join(faults))


@dataclass(slots=True, kw_only=True)
class Side:
    """One of the two systems."""

    system: System
    url: str
    redis_url: str
    worker: Child

    async def restart_worker(self) -> None:
        """Another worker in its place, which has nothing in memory. Raises `ServiceError`."""
        self.system.end(self.worker)
        self.worker, _ = await self.system.start_worker()

    async def warm_up(self, clients: int) -> None:
        """Some questions that are not measured; every slot is another conversation's afterwards."""
        await converse_all(self.url, [_WARMUP] * clients, clients=clients, max_output_tokens=_WARMUP_TOKENS)


async def bench_kv(settings: Settings, bench: Bench, options: KvOptions, console: Console) -> None:
    """Raises `ServiceError`, `ConnectFailed`."""
    reach_peer(options.peer)
    everything = load_conversations()
    console.print("starting two systems, with the cache and without")
    async with _sides(settings, options.clients) as (on, off):
        cells: list[Cell] = []
        if "whole" in options.kinds:
            chosen = parts(choose(everything, options.conversations), bench.rounds)
            cells += _whole(settings, options, chosen, on, off)
        if "ttft" in options.kinds:
            rounds = parts(choose(everything, bench.rounds * _AT_TURN_5), bench.rounds)
            cells += _turn_5(options.clients, rounds, on, off)
        head = {"conversations": options.conversations, "clients": options.clients}
        await bench.run(cells, console, told=peer_ratios, **head)


def peer_ratios(measured: Sequence[Measured]) -> dict[str, float | None]:
    """Return how many times llama-server's answers a second ours are: the medians of the rounds."""
    by_name = {one.name: one for one in measured}
    names = {"peer_ratio_same_prompts": SAME, "peer_ratio_own_prompts": PEER}
    return {
        name: by_name[ON].ratios(by_name[peer]).get("answers_per_s") for name, peer in names.items() if peer in by_name
    }


def parts(conversations: Sequence[Conversation], rounds: int) -> list[list[Conversation]]:
    """A part of them for each round, of like size and with both languages; each is in one round only."""
    size, more = divmod(len(conversations), rounds)
    ends = [(number + 1) * size + min(number + 1, more) for number in range(rounds)]
    return [list(conversations[start:end]) for start, end in zip([0, *ends], ends, strict=False)]


@asynccontextmanager
async def _sides(settings: Settings, slots: int) -> AsyncIterator[tuple[Side, Side]]:
    """With the cache and without, both warm."""
    async with AsyncExitStack() as stack:
        starting = [_start(settings, slots, stack, cached=cached) for cached in (True, False)]
        on, off = await asyncio.gather(*starting)
        for side in (on, off):
            await side.warm_up(slots)
        yield on, off


async def _start(settings: Settings, slots: int, stack: AsyncExitStack, *, cached: bool) -> Side:
    env = {
        "WORKER__SLOTS": str(slots),
        "REDIS__TIMEOUT_MS": "2000",  # what was said before is in every prompt, also when the cores are busy
        "ADMISSION__ENABLED": "false",
        "PROMISE__FIRST_TOKEN_MS": str(DEADLINE_MS),
        "PROMISE__DEADLINE_MS": str(DEADLINE_MS),
        "PROMISE__MAX_DEADLINE_MS": str(DEADLINE_MS),
        "KV__ENABLED": str(cached).lower(),
        "KV__HOST_MIB": _HOST_MIB,
    }
    redis = stack.enter_context(EmbeddedRedis(max_memory_mb=_REDIS_MB))
    system = stack.enter_context(System(settings=settings, broker="embedded", env=env, redis_url=redis.url))
    await system.start_services()
    _, url = await system.start_gateway()
    worker, metrics_url = await system.start_worker()
    await check_engine(settings, metrics_url)
    return Side(system=system, url=url, redis_url=redis.url, worker=worker)


def _whole(
    settings: Settings, options: KvOptions, rounds: Sequence[Sequence[Conversation]], on: Side, off: Side
) -> list[Cell]:
    """Whole conversations, a closed loop: each round all run the same ones. The first of our systems in a round
    computes the prompts that the peer receives in it: the peer's cells are between the two."""
    clients, most = options.clients, options.max_output_tokens
    computed: dict[int, dict[str, list[Asked]]] = {}

    async def by(side: Side, number: int) -> Figures:
        done = await converse_all(side.url, rounds[number], clients=clients, max_output_tokens=most)
        if options.peer is not None and number not in computed:
            sessions = {one.id: (done.sessions[one.id], len(one.turns)) for one in rounds[number]}
            computed[number] = await Prompts(settings, side.redis_url, most).of(sessions)
        return done.figures()

    async def its_own(url: str, number: int) -> Figures:
        worker = settings.worker
        text = grounded_system_text(FaqIndex.load(settings.faq.path), worker.system_prompt, worker.grounding_entries)
        sizes = {"clients": clients, "max_output_tokens": most}
        return (await converse_with_peer(url, rounds[number], system_text=text, **sizes)).figures()

    async def the_same(url: str, number: int) -> Figures:
        if number not in computed:
            raise ServiceError("our own prompts are not known: both systems failed")
        return (await converse_the_same(url, rounds[number], computed[number], clients=clients)).figures()

    @asynccontextmanager
    async def asking(ask: Callable[[str, int], Awaitable[Figures]]) -> AsyncIterator[Measure]:
        async with peer_at(str(options.peer), clients) as url:
            yield partial(ask, url)

    peers = [Cell(name=SAME, open=partial(asking, the_same)), Cell(name=PEER, open=partial(asking, its_own))]
    return [
        standing(OFF, partial(by, off)),
        *(peers if options.peer is not None else []),
        standing(ON, partial(by, on), bases=(OFF, SAME, PEER)),
    ]


def _turn_5(slots: int, rounds: Sequence[Sequence[Conversation]], on: Side, off: Side) -> list[Cell]:
    """The first token of turn 5 of the same conversations: recomputed, or with the cache in each of its levels."""

    async def at_once(side: Side, number: int) -> Figures:
        answers: list[Answered] = []
        for conversation in rounds[number]:
            async with Talk(side.url, conversation) as talk:
                await _lead_up(talk)
                answers.append(await talk.ask(_TURN, _ANSWER_TOKENS))
        return figures_of(answers)

    async def later(number: int, between: Callable[[], Awaitable[None]]) -> Figures:
        async with AsyncExitStack() as stack:
            talks = [await stack.enter_async_context(Talk(on.url, one)) for one in rounds[number]]
            for talk in talks:
                await _lead_up(talk)
            await between()
            await on.warm_up(slots)
            return figures_of([await talk.ask(_TURN, _ANSWER_TOKENS) for talk in talks])

    async def elsewhere() -> None:
        await asyncio.sleep(_STORED_S)
        await on.restart_worker()

    measures: dict[str, Measure] = {
        RECOMPUTED: lambda number: at_once(off, number),
        LEVELS[0]: lambda number: at_once(on, number),
        LEVELS[1]: lambda number: later(number, lambda: asyncio.sleep(_PAUSE_S)),
        LEVELS[2]: lambda number: later(number, elsewhere),
    }
    return [
        standing(name, measure, bases=(RECOMPUTED,) if name in LEVELS else ()) for name, measure in measures.items()
    ]


async def _lead_up(talk: Talk) -> None:
    for turn in range(1, _TURN):
        await talk.ask(turn, _LEADING_TOKENS)
        await asyncio.sleep(_PAUSE_S)


def figures_of(answers: Sequence[Answered]) -> Figures:
    """The medians of some answers to turn 5; `prefill_ms` is the worker's own."""
    return {
        "ttft_ms": middle(answer.ttft_ms for answer in answers),
        "prefill_ms": middle(answer.prefill_ms for answer in answers),
        "prompt_tokens": middle(float(answer.prompt_tokens) for answer in answers),
        "computed_tokens": middle(float(answer.prompt_tokens - answer.cached_tokens) for answer in answers),
        FAILED: sum(not answer.by_model for answer in answers),
    }
