"""`replyline bench path`: what the whole path adds when the engine takes no time.

Real Apache Kafka, Redis, one gateway, one worker with the fake engine; open loop, latency from the scheduled send to
the terminal event. In the same run, on the same broker, the bare prototype of the same hops (`tests.bench.echo`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec import Struct
from rich.console import Console

from ops.load.clients import Load, Question
from ops.load.figures.report import summarise
from ops.load.system import System
from ops.measure.arrivals import Arrivals, schedule
from ops.measure.environment import environment
from ops.measure.quantiles import Quantiles, quantiles
from ops.measure.runner import Cell, check_writable, markdown, progress_bar, verdict, write_json
from ops.stack.processes import free_port
from ops.texts.prompts import question
from shared.errors import SettingsError
from shared.settings import Settings
from tests.bench.echo import REPLIES, REQUESTS
from tests.bench.echo_load import echo_latencies_ms

CONNECTIONS: Final = 64
ANSWER_TOKENS: Final = (1, 8)
P50_TARGET_MS: Final = {200: 2.5}
P99_TARGET_MS: Final = {200: 12.0, 500: 15.0}
_QUESTION_WORDS: Final = 8
# The engine is to be no limit: its tokens are bytes, so a chunk holds several whole prompts (system text, FAQ entries,
# question: some 800 bytes, 170 tokens of the model's), and there are slots enough that none is waited for.
_ENV: Final = {"WORKER__ENGINE": "fake", "WORKER__SLOTS": "64", "WORKER__PREFILL_CHUNK_TOKENS": "65536"}
_PAYLOAD: Final = bytes(200)


class PathRow(Struct, frozen=True, kw_only=True):
    """One rate. `output_tokens` is None for the bare prototype, which answers with what it was sent."""

    what: str
    rate: float
    output_tokens: int | None
    requests: int
    failed: int  # not whole by the model: the times are of the others
    e2e_ms: Quantiles
    ttft_ms: Quantiles


def parse_rates(text: str) -> list[float]:
    """`200,500`. Raises `SettingsError`."""
    try:
        rates = [float(part) for part in text.split(",")]
    except ValueError:
        rates = []
    if not rates or any(not 0 < rate <= 100_000 for rate in rates):
        raise SettingsError(f"--rates {text}: write requests a second, comma-separated: 200,500")
    return rates


def count_of(rate: float, seconds: float) -> int:
    """Requests measured. Raises `SettingsError` where there is none."""
    count = round(rate * seconds)
    if count < 1:
        raise SettingsError(f"--seconds {seconds:g}: no request at --rates {rate:g}; measure longer")
    return count


async def bench_path(
    settings: Settings,
    console: Console,
    *,
    rates: Sequence[float],
    seconds: float,
    warmup_s: float,
    arrivals: Arrivals,
    json_path: Path | None,
) -> None:
    check_writable(json_path)
    for rate in rates:
        count_of(rate, seconds)
    rows: list[PathRow] = []
    facts = environment(engine="fake, no latency", broker="kafka")
    console.print("starting Apache Kafka, Redis, a gateway and a worker")
    with System(settings=settings, broker="kafka", env=_ENV) as system:
        await system.start_services()
        gateway, url = await system.start_gateway()
        worker, _ = await system.start_worker()
        rows += [
            await _whole(url, rate, tokens, seconds, warmup_s, arrivals, console)
            for tokens in ANSWER_TOKENS
            for rate in rates
        ]
        system.end(gateway)
        system.end(worker)
        bare_url = await _start_bare(system)
        rows += [await _bare(bare_url, rate, seconds, warmup_s, arrivals, console) for rate in rates]
    _print(rows)
    write_json(json_path, {"rows": rows, "environment": facts})


async def _whole(
    url: str, rate: float, tokens: int, seconds: float, warmup_s: float, arrivals: Arrivals, console: Console
) -> PathRow:
    count, warmup = count_of(rate, seconds), round(rate * warmup_s)
    load = Load(url=url)
    try:
        limits = await load.open(CONNECTIONS)
        load.max_inflight = limits.max_inflight
        questions = [
            Question(text=question(_QUESTION_WORDS, number), max_output_tokens=tokens, deadline_ms=limits.deadline_ms)
            for number in range(warmup + count)
        ]
        times = schedule(arrivals, rate=rate, count=len(questions))
        with progress_bar(console, f"{rate:g}/s, {tokens} tokens", len(questions)) as progress:
            await load.open_loop(questions, times, progress)
    finally:
        load.close()
    measured = load.outcomes[warmup:]
    report = summarise(measured)
    return PathRow(
        what="whole path",
        rate=rate,
        output_tokens=tokens,
        requests=report.requests,
        failed=sum(not outcome.by_model for outcome in measured),
        e2e_ms=report.e2e_ms,
        ttft_ms=report.ttft_ms,
    )


async def _start_bare(system: System) -> str:
    """The prototype's two processes on the system's broker; returns its address."""
    await system.create_topics({REQUESTS: 1, REPLIES: 1})
    port = free_port()
    await system.start_program("tests.bench.echo", "worker", "--bootstrap", system.bootstrap)
    await system.start_program(
        "tests.bench.echo", "gateway", "--bootstrap", system.bootstrap, "--port", str(port), name="echo-gateway"
    )
    return f"ws://127.0.0.1:{port}/"


async def _bare(
    url: str, rate: float, seconds: float, warmup_s: float, arrivals: Arrivals, console: Console
) -> PathRow:
    count, warmup = count_of(rate, seconds), round(rate * warmup_s)
    times = schedule(arrivals, rate=rate, count=count + warmup)
    console.print(f"the bare prototype, {rate:g}/s")
    warm = await echo_latencies_ms(url, times[:warmup], connections=CONNECTIONS, payload=_PAYLOAD) if warmup else []
    latencies = await echo_latencies_ms(url, times[:count], connections=CONNECTIONS, payload=_PAYLOAD)
    del warm
    figures = quantiles(latencies)
    return PathRow(
        what="bare prototype",
        rate=rate,
        output_tokens=None,
        requests=count,
        failed=count - len(latencies),
        e2e_ms=figures,
        ttft_ms=figures,
    )


def _print(rows: Sequence[PathRow]) -> None:
    bare = {row.rate: row.e2e_ms for row in rows if row.output_tokens is None}
    header = ("", "rate /s", "tokens", "p50 ms", "p99 ms", "of bare p50 / p99", "failed", "target p50", "target p99")
    lines: list[list[Cell]] = []
    for row in rows:
        of, whole = bare[row.rate], row.output_tokens is not None
        p50_target, p99_target = P50_TARGET_MS.get(int(row.rate)), P99_TARGET_MS.get(int(row.rate))
        lines.append(
            [
                row.what,
                row.rate,
                row.output_tokens,
                row.e2e_ms.p50,
                row.e2e_ms.p99,
                f"{_ratio(row.e2e_ms.p50, of.p50)} / {_ratio(row.e2e_ms.p99, of.p99)}",
                row.failed,
                verdict(row.e2e_ms.p50, p50_target, failed=row.failed) if whole and p50_target else "",
                verdict(row.e2e_ms.p99, p99_target, failed=row.failed) if whole and p99_target else "",
            ]
        )
    print(markdown(header, lines))


def _ratio(value: float | None, of: float | None) -> str:
    return f"{value / of:.2f}" if value is not None and of else "–"
