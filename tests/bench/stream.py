"""`replyline bench stream`: how much of the engine's speed the whole system keeps.

Streaming clients in a closed loop on a CPU engine, with embedded Kafka, gateway, worker and client on this machine; and
the engine alone with its batch kept full and nothing else running: no system can be faster. Where one is given, as many
clients of a llama-server. All greedy, prompts of the same length, and answers too: the model's own ends do not count.
"""

import asyncio
import secrets
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import plan_of
from ops.lab.load.figures.report import summarise
from ops.lab.texts.prompts import question
from ops.measure.usage import peak_rss_bytes
from ops.stack.system import System
from shared.errors import SettingsError
from shared.model.chat_template import ChatTemplate
from shared.model.folder import ModelFolder, write_manifest
from shared.model.tokenizer import Tokenizer
from shared.settings import CPU_ENGINES, PREFIX, Settings
from tests.bench.bare_engine import BareRun
from tests.bench.cell import FAILED, Bench, Cell, Figures, Measure, Target, standing
from tests.bench.llama_client import completion, peer_at, reach_peer
from tests.bench.process import check_engine, run_to_end
from workers.prompt.conversation import PromptBuilder

ALONE: Final = "engine alone"
WHOLE: Final = "whole system"
PEER: Final = "llama-server"
TARGETS: Final = (
    Target(cell=WHOLE, figure="tok_s", base=ALONE, value=0.90, at_least=True),
    Target(cell=WHOLE, figure="tok_s", base=PEER, value=2.2, at_least=True),
    Target(cell=WHOLE, figure="ttft_p50_ms", base=PEER, value=0.3),
)
_OPENING: Final = "Write a long and detailed guide for the staff of our shop. Explain each of these words in full:"
_QUESTION_TOKENS: Final = 80  # and nine of the chat template
_BARE_BATCHES: Final = 4
_MIB: Final = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamOptions:
    """`clients` is the engine's batch as well; `requests` are measured in each round."""

    clients: int
    requests: int
    max_output_tokens: int
    peer: str | None = None


async def bench_stream(settings: Settings, bench: Bench, options: StreamOptions, console: Console) -> None:
    """Raises `SettingsError`, `ServiceError`."""
    if settings.worker.engine not in CPU_ENGINES:
        raise SettingsError(
            f"{PREFIX}WORKER__ENGINE={settings.worker.engine}: this bench is of the CPU's engines; unset it"
        )
    reach_peer(options.peer)
    count = Tokenizer.load(settings.model.dir).count
    asked = options.requests + 2 * options.clients
    texts = [fit(_OPENING, _QUESTION_TOKENS, at, count) for at in range(asked)]
    with unending(settings.model.dir) as folder:
        stream = _Stream(settings, options, _env(options.clients, folder), texts)
        cells = [
            standing(ALONE, stream.alone),
            Cell(name=WHOLE, open=stream.system, bases=(ALONE, PEER)),
        ]
        if (peer := options.peer) is not None:
            # Others than ours, and in each run: a llama-server remembers what it was asked.
            first = secrets.randbelow(1 << 30)
            others = [fit(_OPENING, _QUESTION_TOKENS, first + at, count) for at in range(asked * bench.rounds)]
            prompts = prompts_of(settings.model.dir, others)

            async def by_peer(url: str, number: int) -> Figures:
                return await ask_peer(url, prompts[number * asked :][:asked], options)

            @asynccontextmanager
            async def asking() -> AsyncIterator[Measure]:
                async with peer_at(peer, options.clients) as url:
                    yield partial(by_peer, url)

            cells.append(Cell(name=PEER, open=asking))
        await bench.run(cells, console, model=settings.model.dir.name, max_output_tokens=options.max_output_tokens)


@contextmanager
def unending(path: Path) -> Iterator[Path]:
    """Yield a copy of the model's folder with the same name and no stop token: its answers have the requested length,
    so rates are comparable between models. Raises `ModelError` if the folder does not exist."""
    folder = ModelFolder.open(path)
    with tempfile.TemporaryDirectory(prefix="replyline-bench-") as directory:
        copy = Path(directory) / path.name
        copy.mkdir()
        for entry in folder.manifest.files:
            shutil.copyfile(path / entry.name, copy / entry.name)
        write_manifest(copy, msgspec.structs.replace(folder.manifest, stop_token_ids=()))
        yield copy


def _env(clients: int, model: Path) -> dict[str, str]:
    """The prompt is the question alone, and no deadline cuts a slow machine short."""
    return {
        "MODEL__DIR": str(model),
        "WORKER__SLOTS": str(clients),
        "WORKER__SYSTEM_PROMPT": "",
        "WORKER__GROUNDING_ENTRIES": "0",
        "WORKER__HISTORY_TURNS": "0",
        "PROMISE__FIRST_TOKEN_MS": "60000",
        "PROMISE__DEADLINE_MS": "60000",
    }


@dataclass(slots=True)
class _Stream:
    settings: Settings
    options: StreamOptions
    env: dict[str, str]
    texts: Sequence[str]
    answers: list[str] = field(default_factory=list)

    async def alone(self, _: int) -> Figures:
        """The engine's tokens a second. Raises `ServiceError`."""
        batch = self.options.clients
        with tempfile.NamedTemporaryFile(suffix=".json") as file:
            file.write(msgspec.json.encode(self.texts[: batch * min(_BARE_BATCHES, len(self.texts) // batch)]))
            file.flush()
            sizes = [str(batch), str(self.options.max_output_tokens)]
            named = {PREFIX + name: value for name, value in self.env.items()}
            program = [sys.executable, "-m", "tests.bench.bare_engine", file.name, *sizes]
            lines, _rss_mib = await run_to_end(program, env=named)
        run = msgspec.json.decode(lines[-1], type=BareRun)
        self.answers = run.answers
        return {"tok_s": round(run.tok_s, 2)}

    @asynccontextmanager
    async def system(self) -> AsyncIterator[Measure]:
        """A system that is asked by closed-loop clients. Raises `ServiceError`."""
        with System(settings=self.settings, broker="embedded", env=self.env) as system:
            await system.start_services()
            _, url = await system.start_gateway()
            worker, metrics_url = await system.start_worker()
            await check_engine(self.settings, metrics_url)

            async def measure(_: int) -> Figures:
                figures = await self._ask(url)
                return {**figures, "worker_peak_mib": round(peak_rss_bytes(worker.process.pid) / _MIB, 1)}

            yield measure

    async def _ask(self, url: str) -> Figures:
        load = LoadRun(url)
        plan = plan_of(
            self.texts, await load.look(), max_output_tokens=self.options.max_output_tokens, alone=True
        )  # fmt: skip
        return figures_of(
            await load.run(plan, clients=self.options.clients),
            warmup=2 * self.options.clients,
            new_tokens=self.options.max_output_tokens,
            expected=self.answers,
        )


def prompts_of(model: Path, questions: Sequence[str]) -> list[list[int]]:
    """Return the prompts of a worker with neither system text nor FAQ entries nor history."""
    template = ChatTemplate.for_tokenizer(Tokenizer.load(model), ModelFolder.open(model).manifest.chat_template)
    build = PromptBuilder(template, system="", most_turns=0).build
    most = ModelFolder.open(model).manifest.architecture.max_positions
    return [list(build(turns=(), grounding=(), question=one, max_tokens=most).ids) for one in questions]


async def ask_peer(url: str, prompts: Sequence[Sequence[int]], options: StreamOptions) -> Figures:
    """A llama-server's figures, in the same closed loop. Raises `ServiceError`."""
    outcomes: list[Outcome] = []
    new_tokens, left = options.max_output_tokens, iter(prompts)

    def client() -> None:
        for ids in left:  # of a list, so that threads may share it
            outcomes.append(outcome := Outcome(scheduled_s=time.monotonic(), deadline_ms=0))
            for chunk in completion(url, ids, new_tokens):
                if chunk["content"]:
                    outcome.wrote(time.monotonic())
                if chunk["stop"]:
                    outcome.output_tokens = chunk["tokens_predicted"]
            outcome.source, outcome.status, outcome.done_s = "model", "completed", time.monotonic()

    with ThreadPoolExecutor(options.clients) as pool:
        loop = asyncio.get_running_loop()
        await asyncio.gather(*(loop.run_in_executor(pool, client) for _ in range(options.clients)))
    return figures_of(outcomes, warmup=2 * options.clients, new_tokens=new_tokens, expected=())


def figures_of(outcomes: Sequence[Outcome], *, warmup: int, new_tokens: int, expected: Sequence[str]) -> Figures:
    """The figures of a round, but for its first `warmup` answers; `expected` are the texts of the engine alone.

    `tok_s` is the steady rate, while every client has work. Failed is what is not by the model, or not of the length
    that was asked: it took another time. `same_text` is the share of the answers whose text is the engine's own.
    """
    measured = outcomes[warmup:]
    report = summarise(measured)
    pairs = list(zip(outcomes, expected, strict=False))
    return {
        "tok_s": round(steady_tokens_per_s(outcomes, warmup), 2),
        "ttft_p50_ms": report.ttft_ms.p50,
        "ttft_p99_ms": report.ttft_ms.p99,
        "e2e_p50_ms": report.e2e_ms.p50,
        "same_text": sum(outcome.text == text for outcome, text in pairs) / len(pairs) if pairs else None,
        FAILED: sum(not outcome.by_model or outcome.output_tokens != new_tokens for outcome in measured),
    }


def tokens_between(outcomes: Sequence[Outcome], start_s: float, stop_s: float) -> float:
    """Model tokens written within a window.

    Of an answer that reaches over its edge it is the share of the time in which it was written.
    """
    total = 0.0
    for outcome in outcomes:
        if not outcome.by_model or outcome.done_s is None or not outcome.output_tokens:
            continue
        first_s = outcome.first_s if outcome.first_s is not None else outcome.done_s
        length_s = outcome.done_s - first_s
        if length_s <= 0:
            total += outcome.output_tokens if start_s <= first_s < stop_s else 0
            continue
        inside_s = min(outcome.done_s, stop_s) - max(first_s, start_s)
        total += outcome.output_tokens * max(0.0, inside_s) / length_s
    return total


def steady_tokens_per_s(outcomes: Sequence[Outcome], warmup: int) -> float:
    """Of a closed loop while every client has work: from the first measured request to the last one's sending."""
    start_s, stop_s = outcomes[warmup].scheduled_s, outcomes[-1].scheduled_s
    return tokens_between(outcomes, start_s, stop_s) / (stop_s - start_s) if stop_s > start_s else 0.0


def fit(opening: str, num_tokens: int, seed: int, count: Callable[[str], int]) -> str:
    """Return `opening` and as many words as fit into `num_tokens` tokens by `count`."""
    more = question(num_tokens, seed).split()
    low, high = 0, len(more)
    while low < high:
        middle = (low + high + 1) // 2
        if count(" ".join([opening, *more[:middle]])) <= num_tokens:
            low = middle
        else:
            high = middle - 1
    return " ".join([opening, *more[:low]])
