"""The options of `replyline bench produce`."""

from typing import Annotated, Literal

import typer
from rich.console import Console

from ops.load.options import JsonPath, bench_settings, run


def produce(
    rate: Annotated[str, typer.Option(metavar="max|N", help="requests a second, of all processes together")] = "max",
    seconds: Annotated[float, typer.Option(help="of writing; then all acknowledgements are waited for")] = 10.0,
    processes: Annotated[int, typer.Option(help="that write")] = 2,
    requests: Annotated[int, typer.Option(help="at most so many")] = 10_000_000,
    sessions: Annotated[int, typer.Option(help="conversations, in turn")] = 10_000,
    mix: Annotated[str, typer.Option(help="lengths by share, as of bench itself")] = "short=0.9,medium=0.08,long=0.02",
    prefix: Annotated[
        str, typer.Option(help="of the topics; '' is where your workers read, and then they answer all of it")
    ] = "bench.",
    broker: Annotated[
        Literal["configured", "kafka"], typer.Option(help="REPLYLINE_KAFKA__…, or an Apache Kafka of its own")
    ] = "configured",
    keep: Annotated[bool, typer.Option("--keep", help="do not remove the topics that it made")] = False,
    json_path: JsonPath = None,
) -> None:
    """Request records straight to Kafka, as gateways write them: how many the broker takes."""
    from tests.bench.produce.program import ProduceOptions, bench_produce, parse_rate

    options = ProduceOptions(
        rate=parse_rate(rate),
        seconds=seconds,
        processes=processes,
        requests=requests,
        sessions=sessions,
        prefix=prefix,
        mix=mix,
        broker=broker,
        keep=keep,
        json_path=json_path,
    )
    options.check()
    settings = bench_settings()
    run(lambda: bench_produce(settings, options, Console(stderr=True)))
