"""Simulate rollouts: `replyline rollout simulate`."""

from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import JsonPath


class SimulateOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline rollout simulate`."""

    rollouts: Annotated[int, typer.Option(min=1, max=100_000, help="of each kind of two equal versions")] = 20
    trials: Annotated[int, typer.Option(min=1, max=100_000, help="of each kind of a worse canary")] = 20
    rate: Annotated[float, typer.Option(min=0.01, max=10_000, help="the canary's answers a second")] = 2.0
    seed: Annotated[int, typer.Option(min=0, help="the same seed, the same result")] = 1
    json_path: JsonPath = None


def simulate(options: SimulateOptions) -> None:
    """Count, in virtual time, how many answers an alarm takes, and how many equal versions are rolled back."""
    from ops.lab.rollout.trials import table, trials
    from ops.measure.runner import write_json

    rows = trials(options.rollouts, options.trials, options.rate, options.seed, Console(stderr=True))
    typer.echo(table(rows))
    write_json(options.json_path, rows)
