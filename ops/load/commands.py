"""The options of `replyline bench`, and of its commands that make loads: traffic, knee, compare."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console

from ops.load.options import Broker, HtmlPath, JsonPath, Url, run, settings_for, typed

bench_app = typer.Typer(
    help="Measure: a load of your own, or one of the programs that docs/measured.md's numbers come from.",
    invoke_without_command=True,
)


@bench_app.callback()
def load(
    context: typer.Context,
    url: Annotated[
        str | None,
        typer.Option(
            envvar="REPLYLINE_URL",
            help="a running gateway; without it the bench starts an embedded system of its own, and ends it",
        ),
    ] = None,
    broker: Broker = "embedded",
    clients: Annotated[
        int | None, typer.Option(help="closed loop: so many clients, each asks when it is answered [default: 8]")
    ] = None,
    rate: Annotated[
        float | None,
        typer.Option(help="open loop: requests a second on a schedule fixed beforehand; latency from the schedule"),
    ] = None,
    arrivals: Annotated[Literal["poisson", "even"], typer.Option(help="of the open loop")] = "poisson",
    requests: Annotated[int, typer.Option(help="how many are measured")] = 64,
    warmup: Annotated[int, typer.Option(help="so many more before them, not measured")] = 8,
    max_output_tokens: Annotated[int, typer.Option(help="of each answer")] = 64,
    input_tokens: Annotated[int | None, typer.Option(help="length of each question, about")] = None,
    mix: Annotated[
        str | None,
        typer.Option(help="made-up words in place of the FAQ's questions, lengths by share: short=0.8,long=0.2"),
    ] = None,
    deadline_ms: Annotated[int | None, typer.Option(help="of each answer [default: the gateway's]")] = None,
    connections: Annotated[int | None, typer.Option(help="how many sockets [default: as the limits demand]")] = None,
    new_sessions: Annotated[
        bool, typer.Option("--new-sessions", help="a conversation each; else a connection's questions are one")
    ] = False,
    seed: Annotated[int, typer.Option(help="of arrivals and questions")] = 0,
    json_path: JsonPath = None,
) -> None:
    """Drive questions over WebSockets and report TTFT, TPOT, end to end, tok/s, answers by source and goodput."""
    if context.invoked_subcommand is not None:
        return
    from ops.load.bench import LoadOptions, bench_load

    options = LoadOptions(
        url=url,
        broker=broker,
        clients=clients,
        rate=rate,
        arrivals=arrivals,
        requests=requests,
        warmup=warmup,
        input_tokens=input_tokens,
        mix=mix,
        max_output_tokens=max_output_tokens,
        deadline_ms=deadline_ms,
        connections=connections,
        new_sessions=new_sessions,
        seed=seed,
        json_path=json_path,
    )
    options.check()
    settings = settings_for(url)
    run(lambda: bench_load(options, settings, typed(), Console(stderr=True)))


def traffic(
    name: Annotated[str, typer.Argument(help="sessions, promotion, surge, spread, … of docs/simulation.md")],
    rate: Annotated[float, typer.Option(help="requests a second where the traffic is at 1.0")],
    seconds: Annotated[float, typer.Option(help="of arrivals; then all are waited for")] = 120.0,
    url: Url = None,
    token: Annotated[str | None, typer.Option(envvar="REPLYLINE_TOKEN", help="who asks, for all of them")] = None,
    broker: Broker = "embedded",
    seed: Annotated[int, typer.Option(help="the same seed, the same traffic")] = 1,
    json_path: JsonPath = None,
    html_path: HtmlPath = None,
) -> None:
    """Customers as they come: conversations with time to think, a promotion's crowd, +800 %, all lengths."""
    from ops.load.traffic import TrafficOptions, bench_traffic

    options = TrafficOptions(
        name=name,
        rate=rate,
        seconds=seconds,
        url=url,
        token=token,
        broker=broker,
        seed=seed,
        json_path=json_path,
        html_path=html_path,
    )
    options.check()
    settings = settings_for(url)
    run(lambda: bench_traffic(options, settings, typed(), Console(stderr=True)))


def knee(
    ttft_p99_ms: Annotated[float | None, typer.Option(help="the model's TTFT p99 at most [default: any]")] = None,
    e2e_p99_ms: Annotated[float | None, typer.Option(help="the model's end to end p99 at most [default: any]")] = None,
    goodput: Annotated[float, typer.Option(help="share of requests answered by the model in time, at least")] = 0.95,
    start: Annotated[float, typer.Option(help="requests a second at first")] = 2.0,
    limit: Annotated[float, typer.Option(help="requests a second at most")] = 1_000.0,
    seconds: Annotated[float, typer.Option(help="of arrivals at each rate, each time")] = 20.0,
    tries: Annotated[int, typer.Option(help="of each rate: most of them decide")] = 3,
    mix: Annotated[str, typer.Option(help="lengths by share, as of bench itself")] = "short=1",
    max_output_tokens: Annotated[int, typer.Option(help="of each answer")] = 64,
    deadline_ms: Annotated[int | None, typer.Option(help="of each answer [default: the gateway's]")] = None,
    url: Url = None,
    broker: Broker = "embedded",
    seed: Annotated[int, typer.Option(help="of arrivals and questions")] = 0,
    json_path: JsonPath = None,
    html_path: HtmlPath = None,
) -> None:
    """The largest rate that is still answered as it should be: up until one fails, then between."""
    from ops.load.figures.tries import Bounds
    from ops.load.knee import KneeOptions, bench_knee

    options = KneeOptions(
        bounds=Bounds(ttft_p99_ms=ttft_p99_ms, e2e_p99_ms=e2e_p99_ms, goodput=goodput),
        start=start,
        limit=limit,
        seconds=seconds,
        tries=tries,
        mix=mix,
        max_output_tokens=max_output_tokens,
        deadline_ms=deadline_ms,
        url=url,
        broker=broker,
        seed=seed,
        json_path=json_path,
        html_path=html_path,
    )
    options.check()
    settings = settings_for(url)
    run(lambda: bench_knee(options, settings, typed(), Console(stderr=True)))


def compare(
    first: Annotated[Path, typer.Argument(metavar="A.json", help="of bench, bench traffic or replay")],
    second: Annotated[Path, typer.Argument(metavar="B.json", help="the one that may be worse")],
    tolerance: Annotated[float, typer.Option(help="what is no difference: 0.05 is five percent")] = 0.05,
    html_path: HtmlPath = None,
) -> None:
    """Is the second result worse than the first? Ratios with their confidence; exit status 1 for a regression."""
    from ops.load.compare import CompareOptions, bench_compare

    options = CompareOptions(first=first, second=second, tolerance=tolerance, html_path=html_path)
    raise typer.Exit(bench_compare(options, typed(), Console(stderr=True)))


for _command in (traffic, knee, compare):
    bench_app.command()(_command)
