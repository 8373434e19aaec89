"""`replyline bench`: a load of questions on a running system, or on an embedded one of its own."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from ops.client.outcome import Outcome
from ops.load.clients import Load, Question
from ops.load.figures.report import LATENCIES, LoadReport, Run, as_json, latency_rows, summarise
from ops.load.system import Broker, System
from ops.measure.arrivals import Arrivals, schedule
from ops.measure.environment import BrokerKind, environment
from ops.measure.runner import check_writable, markdown, progress_bar, show, write_json
from ops.measure.usage import raise_file_limit
from ops.texts.prompts import mixed_lengths, parse_mix, question
from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.settings import Settings
from shared.wire.messages import Limits

DEFAULT_CLIENTS: Final = 8
_MAX_CONNECTIONS: Final = 2_000
_SPARE_FILES: Final = 256
_HEADROOM: Final = 1.25


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadOptions:
    """The command's options, checked together."""

    url: str | None
    broker: Broker
    clients: int | None
    rate: float | None
    arrivals: Arrivals
    requests: int
    warmup: int
    input_tokens: int | None
    mix: str | None
    max_output_tokens: int
    deadline_ms: int | None
    connections: int | None
    new_sessions: bool
    seed: int
    json_path: Path | None

    def check(self) -> None:
        """Raises `SettingsError`, one line a fault."""
        at_least_one = {
            "--clients": self.clients,
            "--requests": self.requests,
            "--input-tokens": self.input_tokens,
            "--max-output-tokens": self.max_output_tokens,
            "--deadline-ms": self.deadline_ms,
            "--connections": self.connections,
        }
        faults = [
            f"{name} {value}: must be 1 or more"
            for name, value in at_least_one.items()
            if value is not None and value < 1
        ]
        if self.rate is not None and not (self.rate > 0 and math.isfinite(self.rate)):
            faults.append(f"--rate {self.rate:g}: must be above 0 requests a second")
        if self.rate is not None and self.clients is not None:
            faults.append("--rate and --clients: give one; a rate is an open loop, clients are a closed one")
        if self.input_tokens is not None and self.mix is not None:
            faults.append("--input-tokens and --mix: give one")
        if self.warmup < 0:
            faults.append(f"--warmup {self.warmup}: must be 0 or more")
        if faults:
            raise SettingsError("\n".join(faults))
        if self.mix is not None:
            parse_mix(self.mix)
        check_writable(self.json_path)

    def questions(self, limits: Limits, faq: Sequence[str]) -> list[Question]:
        """Return the warm-up's first. Without a word on the input the questions of the FAQ are asked in turn."""
        return [
            Question(
                text=text,
                max_output_tokens=self.max_output_tokens,
                deadline_ms=self.deadline_ms or limits.deadline_ms,
                ask_deadline=self.deadline_ms is not None,
            )
            for text in self._texts(faq)
        ]

    def _texts(self, faq: Sequence[str]) -> list[str]:
        count = self.warmup + self.requests
        if self.input_tokens is None and self.mix is None:
            return [faq[(self.seed + number) % len(faq)] for number in range(count)]
        mix = parse_mix(self.mix) if self.mix else {}
        lengths = [self.input_tokens] * count if self.input_tokens else mixed_lengths(mix, count, self.seed)
        return [question(length, hash((self.seed, number))) for number, length in enumerate(lengths)]

    def num_connections(self, limits: Limits) -> int:
        """So many that neither limit of a connection (messages a minute, in flight) is met by the load itself."""
        count = self.warmup + self.requests
        if self.connections is not None:
            return self.connections
        if self.new_sessions:
            return count
        if self.rate is None:
            return self.clients or DEFAULT_CLIENTS
        return connections_for(self.rate, self.deadline_ms or limits.deadline_ms, count, limits)


def faq_questions(path: Path | None) -> list[str]:
    """Return each entry's question, of the configured FAQ or the demo shop's. Raises `SettingsError`."""
    return [entry.question for entry in read_entries(path or PACKAGED_PATH)]


def connections_for(rate: float, deadline_ms: int, count: int, limits: Limits) -> int:
    """So many that `count` requests at that rate meet neither limit of a connection."""
    by_rate = rate * 60 / limits.messages_per_minute
    by_inflight = rate * deadline_ms / 1_000 / limits.max_inflight
    wanted = math.ceil(max(by_rate, by_inflight) * _HEADROOM)
    return max(1, min(wanted, count, _MAX_CONNECTIONS))


async def bench_load(options: LoadOptions, settings: Settings, command: str, console: Console) -> None:
    options.check()
    async with target(options.url, options.broker, settings, console) as (url, engine, broker):
        load = Load(url=url)
        try:
            limits = await load.open(1)
            load.max_inflight = 1 if options.rate is None else limits.max_inflight
            questions = options.questions(limits, faq_questions(settings.faq.path))
            num_connections = options.num_connections(limits)
            raise_file_limit(num_connections + _SPARE_FILES)
            await load.open(num_connections)
            facts = environment(engine=engine, broker=broker)
            await _drive(load, options, questions, console)
        finally:
            load.close()
    measured = load.outcomes[options.warmup :]
    if not measured:
        raise SettingsError(f"{url} went away in the warm-up; nothing was measured")
    if options.url is not None:
        models = {outcome.model for outcome in measured if outcome.model}
        facts = msgspec.structs.replace(facts, engine=", ".join(sorted(models)) or "unknown (--url)")
    report = summarise(measured)
    run = _describe(options, command, num_connections, questions[0].deadline_ms)
    print_report(report, Console(), within=f"{run.deadline_ms} ms")
    write_json(options.json_path, as_json(report, run, facts, measured))


async def _drive(load: Load, options: LoadOptions, questions: list[Question], console: Console) -> list[Outcome]:
    with progress_bar(console, "answers", len(questions)) as progress:
        if options.rate is None:
            await load.closed_loop(questions, options.clients or DEFAULT_CLIENTS, progress)
        else:
            times = schedule(options.arrivals, rate=options.rate, count=len(questions), seed=options.seed)
            await load.open_loop(questions, times, progress)
    return load.outcomes


@asynccontextmanager
async def target(
    url: str | None, broker: Broker, settings: Settings, console: Console
) -> AsyncIterator[tuple[str, str, BrokerKind]]:
    """(address, engine, broker) of what is to be measured; without an address, a system of its own."""
    if url is not None:
        yield url, "unknown (--url)", "unknown"
        return
    engine = settings.worker.engine
    parts = f"{broker} Kafka, Redis, gateway, worker, {engine}"
    console.print(f"no --url: starting a system of our own ({parts})", soft_wrap=True)
    with System(settings=settings, broker=broker) as system:
        await system.start_services()
        _, address = await system.start_gateway()
        await system.start_worker()
        name = f"onnx {settings.model.dir.name}" if engine == "onnx" else engine
        yield address, name, broker


def _describe(options: LoadOptions, command: str, num_connections: int, deadline_ms: int) -> Run:
    opened = options.rate is not None
    return Run(
        command=command,
        loop="open" if opened else "closed",
        clients=None if opened else options.clients or DEFAULT_CLIENTS,
        rate=options.rate,
        arrivals=options.arrivals if opened else None,
        connections=num_connections,
        warmup=options.warmup,
        seed=options.seed,
        input=f"{options.input_tokens} tokens" if options.input_tokens else options.mix or "the FAQ's questions",
        max_output_tokens=options.max_output_tokens,
        deadline_ms=deadline_ms,
    )


def print_report(report: LoadReport, console: Console, *, within: str) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in LATENCIES:
        table.add_column(title, justify="left" if title == "ms" else "right")
    for cells in latency_rows(report):
        table.add_row(*map(show, cells))
    console.print(table)
    sources = "  ".join(f"{source} {count}" for source, count in report.by_source.items())
    errors = ", ".join(f"{code} {count}" for code, count in sorted(report.errors.by_code.items())) or "none"
    good = report.goodput
    console.print(f"requests      {report.requests} in {report.duration_s:.1f} s")
    console.print(f"output        {show(report.output_tok_s)} tok/s ({report.output_tokens} tokens)")
    console.print(f"answers by    {sources}")
    console.print(f"goodput       {show(good.per_s)}/s within {within}, {good.share:.1%} of the requests")
    console.print(f"errors        {report.errors.total} ({errors})")
    header = ("requests", "TTFT p50/p95/p99 ms", "end to end p50/p95/p99 ms", "tok/s", "goodput /s", "errors")
    e2e, ttft = report.e2e_ms, report.ttft_ms
    row = (
        report.requests,
        f"{show(ttft.p50)} / {show(ttft.p95)} / {show(ttft.p99)}",
        f"{show(e2e.p50)} / {show(e2e.p95)} / {show(e2e.p99)}",
        report.output_tok_s,
        good.per_s,
        report.errors.total,
    )
    print(markdown(header, [row]))
