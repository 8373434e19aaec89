"""`replyline plan`: compute the size of each part of a system from measured costs, a forecast and the deadlines."""

from typing import Final

import typer
from rich.console import Console

from ops.command_line import settings_of
from ops.scaling.plan.options import PlanOptions
from shared.errors import SettingsError
from shared.process.lifetime import settle_heap

_NUM_LOOKS: Final = 7


def plan(options: PlanOptions) -> None:
    """Say how many workers, partitions, gateways and brokers, and how much Redis, a forecast needs.

    The rate of one worker is simulated with the product's scheduler and admission; formulas are shown for comparison.
    """
    from ops.measure.runner import progress_bar, write_json
    from ops.scaling.plan.forecast import TIMES, make_plan
    from ops.scaling.plan.report import tables
    from ops.traces.costs import read_costs
    from ops.virtual_worker.experiment import Experiment

    settings = settings_of("plan")
    if (options.chats is None) == (options.rate is None):
        raise SettingsError("say --chats (and --think-s), or --rate; one of them")
    experiment = Experiment(
        slots=options.slots,
        seconds=options.seconds,
        seed=options.seed,
        costs=read_costs(options.costs, options.profile),
        settings=settings,
    )
    settle_heap()
    with progress_bar(Console(stderr=True), "simulating", _NUM_LOOKS + len(TIMES)) as progress:
        result, of = make_plan(options, experiment, settings, progress)
    typer.echo(tables(result, of, options.slots))
    for name, text in result.assumptions.items():
        typer.echo(f"{name}: {text}")
    write_json(options.json_path, result)
