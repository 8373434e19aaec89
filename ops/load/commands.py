"""The options of `replyline bench`, and of its commands that make loads: traffic, knee, compare."""

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
    help="Measure: a load of your own, or one of the programs that docs/measured.md's numbers come from.",
    invoke_without_command=True,
)

Deadline = Annotated[int | None, typer.Option(min=1, help="of each answer (default: the gateway's)")]
MaxOutputTokens = Annotated[int, typer.Option(min=1, help="of each answer")]
Seed = Annotated[int, typer.Option(help="of arrivals and questions")]


def _mix(text: str | None) -> str | None:
    from ops.texts.prompts import parse_mix

    if text is not None:
        parse_mix(text)
    return text


Mix = Annotated[
    str | None,
    typer.Option(
        callback=_mix, help="made-up words in place of the FAQ's questions, lengths by share: short=0.8,long=0.2"
    ),
]


class LoadOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench` by itself."""

    url: UrlOrOwn = None
    broker: OwnBroker = "embedded"
    clients: Annotated[
        int | None, typer.Option(min=1, help="closed loop: so many ask, each when it is answered (default: 8)")
    ] = None
    rate: Annotated[
        float | None,
        typer.Option(min=0.001, max=1e6, help="open loop: requests a second, by a schedule; latency runs from it"),
    ] = None
    arrivals: Annotated[Literal["poisson", "even"], typer.Option(help="of the open loop")] = "poisson"
    requests: Annotated[int, typer.Option(min=1, help="how many are measured")] = 64
    warmup: Annotated[int, typer.Option(min=0, help="so many more before them, not measured")] = 8
    max_output_tokens: MaxOutputTokens = 64
    input_tokens: Annotated[int | None, typer.Option(min=1, help="made-up words of about that length")] = None
    mix: Mix = None
    deadline_ms: Deadline = None
    connections: Annotated[int | None, typer.Option(min=1, help="how many sockets (default: as the limits demand)")] = (
        None
    )
    new_sessions: Annotated[
        bool, typer.Option("--new-sessions", help="a conversation each; else a connection's questions are one")
    ] = False
    seed: Seed = 0
    json_path: JsonPath = None


def load(context: typer.Context, options: LoadOptions) -> None:
    """Drive questions over WebSockets and report TTFT, TPOT, end to end, tok/s, answers by source and goodput."""
    if context.invoked_subcommand is not None:
        return
    from ops.load.bench import bench_load

    if options.rate is not None and options.clients is not None:
        raise SettingsError("--rate and --clients: give one; a rate is an open loop, clients are a closed one")
    if options.input_tokens is not None and options.mix is not None:
        raise SettingsError("--input-tokens and --mix: give one")
    settings = settings_of_own_system(options.url)
    run(lambda: bench_load(options, settings, command_typed(), Console(stderr=True)))


class TrafficOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench traffic`."""

    name: Annotated[str, typer.Argument(help="sessions, promotion, surge, spread, … of docs/simulation.md")]
    rate: Annotated[float, typer.Option(min=0.001, max=1e5, help="requests a second where the traffic is at 1.0")]
    seconds: Annotated[float, typer.Option(min=1, max=86_400, help="of arrivals; then all are waited for")] = 120.0
    made_up: Annotated[
        bool | None,
        typer.Option(
            "--made-up/--faq",
            help="words of the traffic's lengths, or the FAQ's questions (default: by whether lengths are its point)",
        ),
    ] = None
    url: UrlOrOwn = None
    token: Token = None
    broker: OwnBroker = "embedded"
    seed: Annotated[int, typer.Option(help="the same seed, the same traffic")] = 1
    json_path: JsonPath = None
    html_path: HtmlPath = None


def traffic(options: TrafficOptions) -> None:
    """Send customers as they come: conversations with time to think, a promotion's crowd, +800 %, all lengths."""
    from ops.load.traffic import bench_traffic, check

    check(options)
    settings = settings_of_own_system(options.url)
    run(lambda: bench_traffic(options, settings, command_typed(), Console(stderr=True)))


class KneeOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench knee`."""

    ttft_p99_ms: Annotated[
        float | None, typer.Option(min=0.001, help="the model's TTFT p99 at most (default: any)")
    ] = None
    e2e_p99_ms: Annotated[
        float | None, typer.Option(min=0.001, help="the model's end to end p99 at most (default: any)")
    ] = None
    goodput: Annotated[
        float, typer.Option(min=0, max=1, help="share of requests answered by the model in time, at least")
    ] = 0.95
    start: Annotated[float, typer.Option(min=0.1, max=1e5, help="requests a second at first")] = 2.0
    limit: Annotated[float, typer.Option(min=0.1, max=1e5, help="requests a second at most")] = 1_000.0
    seconds: Annotated[float, typer.Option(min=1, max=3_600, help="of arrivals at each rate, each time")] = 20.0
    tries: Annotated[int, typer.Option(min=1, max=15, help="of each rate: most of them decide")] = 3
    mix: Mix = None
    max_output_tokens: MaxOutputTokens = 64
    deadline_ms: Deadline = None
    url: UrlOrOwn = None
    broker: OwnBroker = "embedded"
    seed: Seed = 0
    json_path: JsonPath = None
    html_path: HtmlPath = None


def knee(options: KneeOptions) -> None:
    """Find the largest rate that is still answered as it should be: up until one fails, then between."""
    from ops.load.knee import bench_knee

    if options.limit < options.start:
        raise SettingsError(f"--limit {options.limit:g}: must be {options.start:g} (--start) or more")
    settings = settings_of_own_system(options.url)
    run(lambda: bench_knee(options, settings, command_typed(), Console(stderr=True)))


class CompareOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline bench compare`."""

    first: Annotated[Path, typer.Argument(metavar="A.json", help="of bench, bench traffic or replay")]
    second: Annotated[Path, typer.Argument(metavar="B.json", help="the one that may be worse")]
    tolerance: Annotated[float, typer.Option(min=0, max=1, help="what is no difference: 0.05 is five percent")] = 0.05
    html_path: HtmlPath = None


def compare(options: CompareOptions) -> None:
    """Is the second result worse than the first? Ratios with their confidence; exit status 1 for a regression."""
    from ops.load.compare import bench_compare

    raise typer.Exit(bench_compare(options, command_typed(), Console(stderr=True)))


bench_app.callback()(by_options(load))
for _command in (traffic, knee, compare):
    bench_app.command()(by_options(_command))
