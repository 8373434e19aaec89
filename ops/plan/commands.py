"""`replyline plan`: from measured costs, a forecast and the deadlines to how many of everything."""

from pathlib import Path
from typing import Annotated, Final, Literal

import typer
from rich.console import Console

from shared.errors import SettingsError
from shared.process.lifetime import settle_heap
from shared.settings import load_settings
from shared.telemetry.logs import configure_logs

_NUM_LOOKS: Final = 7


def plan(
    chats: Annotated[
        int | None, typer.Option(min=1, max=100_000_000, help="customers who chat at the same time")
    ] = None,
    think_s: Annotated[
        float, typer.Option(min=0.1, max=86_400, help="of each, between an answer and the next question")
    ] = 40.0,
    rate: Annotated[
        float | None, typer.Option(min=0.001, max=1e7, help="questions a second, in place of --chats")
    ] = None,
    surge: Annotated[float, typer.Option(min=1, max=1_000, help="the peak, in multiples of that")] = 1.0,
    turns: Annotated[float, typer.Option(min=1, max=1_000, help="questions of a conversation")] = 4.0,
    mix: Annotated[
        Literal["poisson", "spread", "heavy", "bimodal", "sessions"],
        typer.Option(help="what is asked: as in replyline simulate --trace"),
    ] = "poisson",
    costs: Annotated[
        str, typer.Option(help="cpu (measured), gpu (given), or the file of a worker's calibration")
    ] = "cpu",
    profile: Annotated[
        Literal["cpu", "gpu"] | None, typer.Option(help="the product's deadlines [default: by the costs]")
    ] = None,
    slots: Annotated[int, typer.Option(min=1, max=4_096, help="sequences that a worker decodes together")] = 16,
    attainment: Annotated[
        float, typer.Option(min=0.01, max=0.9999, help="share of the questions that the model answers whole in time")
    ] = 0.95,
    headroom: Annotated[
        float, typer.Option(min=0, max=0.95, help="share of everything that is free at the peak")
    ] = 0.3,
    seconds: Annotated[float, typer.Option(min=10, max=3_600, help="of arrivals in each simulation")] = 120.0,
    seed: Annotated[int, typer.Option(help="the same seed, the same plan")] = 1,
    worker_price: Annotated[float | None, typer.Option(min=0, help="of a worker's hour")] = None,
    gateway_price: Annotated[float | None, typer.Option(min=0, help="of a gateway's hour")] = None,
    broker_price: Annotated[float | None, typer.Option(min=0, help="of a broker's hour")] = None,
    redis_price: Annotated[float | None, typer.Option(min=0, help="of an hour of a GiB of Redis")] = None,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write it all, with stable keys")
    ] = None,
) -> None:
    """Say how many workers, partitions, gateways and brokers, and how much Redis, a forecast needs.

    What a worker carries is simulated with the scheduler and the admission that serve; formulas stand beside it.
    """
    from ops.measure.runner import check_writable, progress_bar, write_json
    from ops.plan.forecast import TIMES, Forecast, make_plan
    from ops.plan.report import tables
    from ops.plan.sizes import Prices
    from ops.simulate.experiment import Experiment
    from ops.traces.costs import read_costs

    settings = load_settings()
    configure_logs(settings.log, process="plan")
    if (chats is None) == (rate is None):
        raise SettingsError("say --chats (and --think-s), or --rate; one of them")
    check_writable(json_path)
    experiment = Experiment(
        traces=(mix,),
        loads=(1.0,),
        policies=(),
        slots=slots,
        seconds=seconds,
        seed=seed,
        lengths="predicted",
        costs=read_costs(costs, profile),
        settings=settings,
    )
    prices = Prices(worker=worker_price, gateway=gateway_price, broker=broker_price, redis_gib=redis_price)
    settle_heap()
    forecast = Forecast(
        kind=mix,
        chats=chats,
        think_s=think_s,
        rate=rate,
        surge=surge,
        turns=turns,
        goal=attainment,
        headroom=headroom,
    )
    with progress_bar(Console(stderr=True), "simulating", _NUM_LOOKS + len(TIMES)) as progress:
        result, of = make_plan(forecast, experiment, settings, prices, progress)
    typer.echo(tables(result, of, slots))
    for name, text in result.assumptions.items():
        typer.echo(f"{name}: {text}")
    write_json(json_path, result)
