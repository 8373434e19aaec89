"""`replyline bench path`: the overhead of the whole path when the engine takes no time.

Real Apache Kafka, Redis, one gateway, one worker with the fake engine; open loop, latency from the scheduled send to
the terminal event. For comparison, on the same broker, the bare prototype of the same hops (`tests.bench.echo`).
"""

from contextlib import nullcontext
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from ops.lab.client.load import LoadRun
from ops.lab.client.plan import plan_of
from ops.lab.load.figures.report import summarise
from ops.lab.texts.prompts import question
from ops.measure.arrivals import Arrivals, schedule
from ops.measure.quantiles import quantiles
from ops.stack.processes import free_port
from ops.stack.system import System
from shared.errors import SettingsError
from shared.settings import Settings
from tests.bench.cell import FAILED, Bench, Cell, Figures, Target, standing
from tests.bench.echo import REPLIES, REQUESTS, echo_latencies_ms
from tests.bench.ledger import Ledger

ANSWER_TOKENS: Final = (1, 8)
TARGETS: Final = tuple(
    Target(cell=f"whole path, {tokens} tokens, {rate}/s", figure=figure, value=value)
    for tokens in ANSWER_TOKENS
    for rate, figure, value in ((200, "p50_ms", 2.5), (200, "p99_ms", 12.0), (500, "p99_ms", 15.0))
)
_CONNECTIONS: Final = 64
_QUESTION_WORDS: Final = 8
# The engine is to be no limit: its tokens are bytes, so a chunk holds several whole prompts (system text, FAQ entries,
# question: some 800 bytes, 170 tokens of the model's), and there are slots enough that none is waited for.
_ENV: Final = {"WORKER__ENGINE": "fake", "WORKER__SLOTS": "64", "WORKER__PREFILL_CHUNK_TOKENS": "65536"}
_PAYLOAD: Final = bytes(200)
_MOST_RATE: Final = 100_000


def parse_rates(text: str) -> list[float]:
    """`200,500`. Raises `SettingsError`."""
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        rates = []
    if not rates or any(not 0 < rate <= _MOST_RATE for rate in rates):
        raise SettingsError(f"--rates {text}: write requests a second, comma-separated: 200,500")
    return rates


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """How an open loop asks; the requests of the first `warmup_s` are not measured."""

    seconds: float
    warmup_s: float
    arrivals: Arrivals

    def counts(self, rate: float) -> tuple[int, int]:
        """Return the requests of the warm-up and those measured. Raises `SettingsError` if there are none."""
        count = round(rate * self.seconds)
        if count < 1:
            raise SettingsError(f"--seconds {self.seconds:g}: no request at --rates {rate:g}; measure longer")
        return round(rate * self.warmup_s), count


async def bench_path(
    settings: Settings, bench: Bench, rates: list[float], asking: Asking, console: Console, *, profiled: bool = False
) -> None:
    """Raises `ServiceError`, `SettingsError`. `profiled`: print a question's CPU by process and step."""
    for rate in rates:
        asking.counts(rate)
    console.print("starting Apache Kafka, Redis, a gateway, a worker and the bare prototype")
    with System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        gateway, url = await system.start_gateway()
        worker, _ = await system.start_worker()
        bare_url = await _start_bare(system)
        pids = {"gateway": gateway.process.pid, "worker": worker.process.pid}
        named = [(tokens, rate) for tokens in ANSWER_TOKENS for rate in rates]
        ledgers = {_whole_name(*each): Ledger(pids) for each in named} if profiled else {}
        cells = [_bare(bare_url, rate, asking) for rate in rates]
        cells += [_whole(url, rate, tokens, asking, ledgers.get(_whole_name(tokens, rate))) for tokens, rate in named]
        await bench.run(cells, console, lambda _: {"ledger": {name: each.us for name, each in ledgers.items()}})
        for name, ledger in ledgers.items():
            print(f"\n{name}\n{ledger}")


def _whole(url: str, rate: float, tokens: int, asking: Asking, ledger: Ledger | None) -> Cell:
    async def measure(_: int) -> Figures:
        warmup, count = asking.counts(rate)
        limits = await LoadRun(url).look()
        texts = [question(_QUESTION_WORDS, at) for at in range(warmup + count)]
        times = schedule(asking.arrivals, rate=rate, count=len(texts))
        load = LoadRun(url, connections=_CONNECTIONS, max_inflight=limits.max_inflight)
        plan = plan_of(texts, limits, max_output_tokens=tokens, times=times)
        async with ledger.sampled(len(texts)) if ledger else nullcontext():
            outcomes = (await load.run(plan))[warmup:]
        taken = summarise(outcomes).e2e_ms
        return {"p50_ms": taken.p50, "p99_ms": taken.p99, FAILED: sum(not outcome.by_model for outcome in outcomes)}

    return standing(_whole_name(tokens, rate), measure, bases=(_bare_name(rate),))


def _whole_name(tokens: int, rate: float) -> str:
    return f"whole path, {tokens} tokens, {rate:g}/s"


def _bare(url: str, rate: float, asking: Asking) -> Cell:
    async def measure(_: int) -> Figures:
        warmup, count = asking.counts(rate)
        times = schedule(asking.arrivals, rate=rate, count=warmup + count)
        latencies = await echo_latencies_ms(url, times, connections=_CONNECTIONS, payload=_PAYLOAD)
        taken = quantiles(latencies[warmup:])
        return {"p50_ms": taken.p50, "p99_ms": taken.p99, FAILED: len(times) - len(latencies)}

    return standing(_bare_name(rate), measure)


def _bare_name(rate: float) -> str:
    return f"bare prototype, {rate:g}/s"


async def _start_bare(system: System) -> str:
    """Start the prototype's two processes on the system's broker; return its address."""
    await system.create_topics({REQUESTS: 1, REPLIES: 1})
    port = free_port()
    await system.start_program("tests.bench.echo", "worker", system.bootstrap)
    await system.start_program(
        "tests.bench.echo", "gateway", system.bootstrap, "--port", str(port), name="echo-gateway"
    )
    return f"ws://127.0.0.1:{port}/"
