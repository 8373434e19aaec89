"""The options of `replyline bench`, and of its commands for loads: traffic, knee, compare."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import (
    HtmlPath,
    JsonPath,
    OwnBroker,
    Token,
    UrlOrOwn,
    by_options,
    command_typed,
    run,
    settings_of_own_system,
)
from shared.errors import SettingsError

bench_app = typer.Typer(
    help="Measure a load of your choice, or run one of the programs behind the numbers in docs/measured.md.",
    invoke_without_command=True,
)

Deadline = Annotated[int | None, typer.Option(min=1, help="deadline of each answer, in ms (default: the gateway's)")]
MaxOutputTokens = Annotated[int, typer.Option(min=1, help="maximum tokens of each answer")]
Seed = Annotated[int, typer.Option(help="seed of the arrivals and questions")]


def _mix(text: str | None) -> str | None:
    from ops.texts.prompts import parse_mix

    if text is not None:
        parse_mix(text)
    return text


Mix = Annotated[
    str | None,
    typer.Option(
        callback=_mix, help="generated questions instead of the FAQ's, with these shares of lengths: short=0.8,long=0.2"
    ),
]


class LoadOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench` without a command."""

    url: UrlOrOwn = None
    broker: OwnBroker = "embedded"
    clients: Annotated[
        int | None,
        typer.Option(min=1, help="closed loop: number of clients, each asks again when it is answered (default: 8)"),
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, help="open loop: requests per second; latency is measured from the schedule"),
    ] = None
    arrivals: Annotated[Literal["poisson", "even"], typer.Option(help="arrivals of the open loop")] = "poisson"
    requests: Annotated[int, typer.Option(min=1, help="number of requests measured")] = 64
    warmup: Annotated[int, typer.Option(min=0, help="number of requests before them that are not measured")] = 8
    max_output_tokens: MaxOutputTokens = 64
    input_tokens: Annotated[int | None, typer.Option(min=1, help="generated questions of about this many tokens")] = (
        None
    )
    mix: Mix = None
    deadline_ms: Deadline = None
    connections: Annotated[
        int | None, typer.Option(min=1, help="number of connections (default: as the limits require)")
    ] = None
    new_sessions: Annotated[
        bool, typer.Option("--new-sessions", help="one conversation per question; otherwise one per connection")
    ] = False
    seed: Seed = 0
    json_path: JsonPath = None


def load(context: typer.Context, options: LoadOptions) -> None:
    """Send questions over WebSockets and report TTFT, TPOT, end-to-end time, tok/s, answers by source and goodput."""
    if context.invoked_subcommand is not None:
        return
    from ops.load.bench import bench_load

    if options.rate is not None and options.clients is not None:
        raise SettingsError("--rate and --clients: use one; a rate is an open loop, clients are a closed one")
    if options.input_tokens is not None and options.mix is not None:
        raise SettingsError("--input-tokens and --mix: use one")
    settings = settings_of_own_system(options.url)
    run(lambda: bench_load(options, settings, command_typed(), Console(stderr=True)))


class TrafficOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench traffic`."""

    name: Annotated[
        str, typer.Argument(help="kind of traffic in docs/simulation.md: sessions, promotion, surge, spread, …")
    ]
    rate: Annotated[float, typer.Option(min=0.001, max=1e5, help="requests per second where the traffic is at 1.0")]
    seconds: Annotated[
        float, typer.Option(min=1, max=86_400, help="duration of the arrivals; then wait for all answers")
    ] = 120.0
    made_up: Annotated[
        bool | None,
        typer.Option(
            "--made-up/--faq",
            help="generated questions of the traffic's lengths, or the FAQ's (default: depends on the traffic)",
        ),
    ] = None
    url: UrlOrOwn = None
    token: Token = None
    broker: OwnBroker = "embedded"
    seed: Annotated[int, typer.Option(help="seed of the traffic")] = 1
    json_path: JsonPath = None
    html_path: HtmlPath = None


def traffic(options: TrafficOptions) -> None:
    """Send realistic traffic: conversations with time to think, a promotion's crowd, +800 %, all lengths."""
    from ops.load.traffic import bench_traffic, check

    check(options)
    settings = settings_of_own_system(options.url)
    run(lambda: bench_traffic(options, settings, command_typed(), Console(stderr=True)))


class KneeOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench knee`."""

    ttft_p99_ms: Annotated[
        float | None, typer.Option(min=0.001, help="upper bound of the model's TTFT p99 (default: none)")
    ] = None
    e2e_p99_ms: Annotated[
        float | None, typer.Option(min=0.001, help="upper bound of the model's end-to-end p99 (default: none)")
    ] = None
    goodput: Annotated[
        float, typer.Option(min=0, max=1, help="minimum share of requests answered by the model in time")
    ] = 0.95
    start: Annotated[float, typer.Option(min=0.1, max=1e5, help="first rate, in requests per second")] = 2.0
    limit: Annotated[float, typer.Option(min=0.1, max=1e5, help="highest rate, in requests per second")] = 1_000.0
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="duration of the arrivals of each try")] = 20.0
    tries: Annotated[int, typer.Option(min=1, max=15, help="tries per rate; the majority decides")] = 3
    mix: Mix = None
    max_output_tokens: MaxOutputTokens = 64
    deadline_ms: Deadline = None
    url: UrlOrOwn = None
    broker: OwnBroker = "embedded"
    seed: Seed = 0
    json_path: JsonPath = None
    html_path: HtmlPath = None


def knee(options: KneeOptions) -> None:
    """Find the largest rate at which the answers stay within bounds: increase it until one fails, then search in
    between."""
    from ops.load.knee import bench_knee

    if options.limit < options.start:
        raise SettingsError(f"--limit {options.limit:g}: must be {options.start:g} (--start) or more")
    settings = settings_of_own_system(options.url)
    run(lambda: bench_knee(options, settings, command_typed(), Console(stderr=True)))


class CompareOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench compare`."""

    first: Annotated[Path, typer.Argument(metavar="A.json", help="result of bench, bench traffic or replay")]
    second: Annotated[Path, typer.Argument(metavar="B.json", help="the result that may be worse")]
    tolerance: Annotated[float, typer.Option(min=0, max=1, help="difference that is ignored: 0.05 is five percent")] = (
        0.05
    )
    html_path: HtmlPath = None


def compare(options: CompareOptions) -> None:
    """Decide whether the second result is worse than the first, with ratios and confidence intervals. Exit status 1 for
    a regression."""
    from ops.load.compare import bench_compare

    raise typer.Exit(bench_compare(options, command_typed(), Console(stderr=True)))


bench_app.callback()(by_options(load))
for _command in (traffic, knee, compare):
    bench_app.command()(by_options(_command))
