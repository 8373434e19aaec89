"""The options of `replyline chaos`."""

from typing import Annotated, Final

import typer
from rich.console import Console

from ops.command_line import JsonPath
from shared.process.lifetime import fail
from shared.settings import load_settings
from shared.telemetry.logs import configure_logs
from shared.wire.fields import MAX_SEED
from tests.chaos.faults.schedule import Kind

LATE_STATUS: Final = 3

chaos_app = typer.Typer(
    help="Kill processes under load, and look whether every promise was kept.", no_args_is_help=True
)


@chaos_app.callback()
def chaos() -> None:
    """Kill processes under load, and look whether every promise was kept."""


@chaos_app.command("run")
def run(
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="of the questions, their times and the faults")] = 1,
    minutes: Annotated[float, typer.Option(min=0.001, max=240, help="of load")] = 1.0,
    rate: Annotated[
        float, typer.Option(min=0.001, max=1_000, help="requests a second, on a schedule fixed beforehand")
    ] = 20.0,
    clients: Annotated[int, typer.Option(min=1, max=2_000, help="conversations, each with a socket")] = 40,
    brokers: Annotated[int, typer.Option(min=1, max=3, help="1, or 3 of which one at a time is killed")] = 1,
    faults: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=COUNT,…",
            help=f"of {', '.join(Kind)} (default: those that kill, and the network's, by minutes)",
        ),
    ] = None,
    json_path: JsonPath = None,
) -> None:
    """Run real processes under an open loop of requests, with SIGKILLs by a schedule drawn from the seed; then judge
    the ledger.

    If a promise was broken, print each story and exit with status 1. Exit with 3 if the only breach is that an answer
    ended too late, which also happens when the machine itself stalls.
    """
    from ops.measure.runner import run_bench
    from tests.chaos.run import ChaosOptions, PromiseLate, run_chaos

    options = ChaosOptions(
        seed=seed,
        minutes=minutes,
        rate=rate,
        clients=clients,
        brokers=brokers,
        faults=faults,
        json_path=json_path,
    )
    options.plan()
    configure_logs(load_settings().log, process="chaos")
    try:
        status = run_bench(lambda: run_chaos(options, Console(stderr=True)))
    except PromiseLate as error:
        status = fail(str(error), LATE_STATUS)
    raise typer.Exit(status)
