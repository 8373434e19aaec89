"""`replyline bench`: send a load of questions to a running system, or to one that it starts."""

import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import msgspec
from rich.console import Console
from rich.table import Table

from ops.command_line import output
from ops.lab.client.load import LoadRun
from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import plan_of
from ops.lab.load.figures.groups import rows_of
from ops.lab.load.figures.report import LATENCIES, LoadParameters, LoadReport, as_json, latency_rows, summarise
from ops.lab.load.options import LoadOptions
from ops.lab.load.pages.load import LoadFacts, load_page
from ops.lab.texts.prompts import mixed_lengths, parse_mix, question
from ops.measure.arrivals import schedule
from ops.measure.environment import BrokerKind, Environment, environment
from ops.measure.runner import markdown, progress_bar, show, write_html, write_json
from ops.measure.usage import raise_file_limit
from ops.stack.own_services import Broker
from ops.stack.system import System
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.nouns import counted
from shared.settings import CPU_ENGINES, Settings
from shared.wire.messages import Limits

DEFAULT_CLIENTS: Final = 8
_MAX_CONNECTIONS: Final = 2_000
_SPARE_FILES: Final = 256
_HEADROOM: Final = 1.25
UNKNOWN: Final = "unknown (--url)"


def faq_questions(path: Path | None) -> list[str]:
    """Return the question of each entry of the configured FAQ, or of the demo shop's. Raises `SettingsError`."""
    return [entry.question for entry in read_entries(path or PACKAGED_PATH)]


def texts_of(
    count: int, seed: int, faq: Sequence[str], *, mix: str | None, input_tokens: int | None = None
) -> list[str]:
    """Return the FAQ's questions in turn, or generated ones with a mix of lengths or a fixed length."""
    if mix is None and input_tokens is None:
        return [faq[(seed + number) % len(faq)] for number in range(count)]
    lengths = [input_tokens] * count if input_tokens else mixed_lengths(parse_mix(mix or ""), count, seed)
    return [question(length, hash((seed, number))) for number, length in enumerate(lengths)]


def connections_for(rate: float, deadline_ms: int, count: int, limits: Limits) -> int:
    """Return how many connections are needed so that `count` requests at that rate stay below both limits of a
    connection: messages per minute, and requests in flight."""
    by_rate = rate * 60 / limits.messages_per_minute
    by_inflight = rate * deadline_ms / 1_000 / limits.max_inflight
    wanted = math.ceil(max(by_rate, by_inflight) * _HEADROOM)
    return max(1, min(wanted, count, _MAX_CONNECTIONS))


def open_files(connections: int) -> None:
    """Allow enough open files for the connections. Raises `SettingsError` with the remedy."""
    raise_file_limit(connections + _SPARE_FILES)


async def bench_load(options: LoadOptions, settings: Settings, command: str, console: Console) -> None:
    """Run one load. Raises `SettingsError`, `ConnectFailed`, `ServiceError`."""
    count = options.warmup + options.requests
    async with target(options.url, options.broker, settings, console) as (url, facts):
        limits = await LoadRun(url).look()
        clients = options.clients or DEFAULT_CLIENTS if options.rate is None else None
        deadline_ms = options.deadline_ms or limits.deadline_ms
        connections = options.connections or (count if options.new_sessions else clients)
        if options.rate is not None and connections is None:
            connections = connections_for(options.rate, deadline_ms, count, limits)
        assert connections is not None, "a load has a rate or clients"
        open_files(connections)
        times = None
        if options.rate is not None:
            times = schedule(options.arrivals, rate=options.rate, count=count, seed=options.seed)
        faq = faq_questions(settings.faq.path)
        plan = plan_of(
            texts_of(count, options.seed, faq, mix=options.mix, input_tokens=options.input_tokens),
            limits,
            max_output_tokens=options.max_output_tokens,
            deadline_ms=options.deadline_ms,
            times=times,
            alone=options.new_sessions and options.connections is None,
        )
        load = LoadRun(url, connections=connections, max_inflight=1 if clients else limits.max_inflight)
        with progress_bar(console, "answers", count) as progress:
            outcomes = await load.run(plan, progress, clients=clients)
    measured = outcomes[options.warmup :]
    report, run = summarise(measured), _run_of(options, command, clients, connections, deadline_ms)
    print_report(report, within=f"{deadline_ms} ms")
    write_json(options.json_path, as_json(report, run, answered_by(facts, measured), measured))


def _run_of(
    options: LoadOptions, command: str, clients: int | None, connections: int, deadline_ms: int
) -> LoadParameters:
    return LoadParameters(
        command=command,
        loop="closed" if clients else "open",
        clients=clients,
        rate=options.rate,
        arrivals=None if clients else options.arrivals,
        connections=connections,
        warmup=options.warmup,
        seed=options.seed,
        input=f"{options.input_tokens} tokens" if options.input_tokens else options.mix or "the FAQ's questions",
        max_output_tokens=options.max_output_tokens,
        deadline_ms=deadline_ms,
    )


@asynccontextmanager
async def target(
    url: str | None, broker: Broker, settings: Settings, console: Console
) -> AsyncIterator[tuple[str, Environment]]:
    """Yield the address to measure, and its environment. Without a `url`, start a system and stop it afterwards."""
    if url is not None:
        yield url, environment(engine=UNKNOWN, broker="unknown")
        return
    engine = settings.worker.engine
    parts = f"{broker} Kafka, Redis, gateway, worker, {engine}"
    console.print(f"no --url: starting a system ({parts})", soft_wrap=True)
    kind: BrokerKind = broker
    with System(settings=settings, broker=broker) as system:
        await system.start_services()
        _, address = await system.start_gateway()
        await system.start_worker()
        name = f"{engine} {settings.model.dir.name}" if engine in CPU_ENGINES else engine
        yield address, environment(engine=name, broker=kind)


def answered_by(facts: Environment, outcomes: Sequence[Outcome]) -> Environment:
    """Name the models that answered, if the engine is unknown."""
    models = sorted({outcome.model for outcome in outcomes if outcome.model})
    return msgspec.structs.replace(facts, engine=", ".join(models)) if models and facts.engine == UNKNOWN else facts


def print_report(report: LoadReport, *, within: str) -> None:
    """Print the latencies as a table, then the outcomes, then a line for docs/measured.md."""
    console = output()
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
    console.print(f"output        {show(report.output_tok_s)} tok/s ({counted(report.output_tokens, 'token')})")
    console.print(f"answers by    {sources}")
    console.print(f"goodput       {show(good.per_s)}/s within {within}, {good.share:.1%} of the requests")
    console.print(f"errors        {report.errors.total} ({errors})")
    header = ("requests", "TTFT p50/p95/p99 ms", "end to end p50/p95/p99 ms", "tok/s", "goodput /s", "errors")
    ttft, e2e = (" / ".join(map(show, (of.p50, of.p95, of.p99))) for of in (report.ttft_ms, report.e2e_ms))
    row = (report.requests, ttft, e2e, report.output_tok_s, good.per_s, report.errors.total)
    print(markdown(header, [row]))


def tell(told: LoadFacts, json_path: Path | None, html_path: Path | None, console: Console) -> None:
    """Print the results of a load whose requests have individual deadlines, and write the files asked for."""
    print_report(told.report, within="their deadlines")
    print(markdown(*rows_of(told.grouped_by, told.groups)))
    result = as_json(told.report, told.run, told.environment, told.outcomes)
    write_json(json_path, {**result, f"by_{told.grouped_by}": told.groups})
    if html_path is not None:
        write_html(html_path, load_page(told), console)
