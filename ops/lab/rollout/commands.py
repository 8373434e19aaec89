"""Simulate rollouts: `replyline rollout simulate`."""

from typing import Annotated, Final

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import JsonPath, settings_of

_SEEDS: Final = 5


class SimulateOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline rollout simulate`."""

    rollouts: Annotated[int, typer.Option(min=1, max=100_000, help="of each kind of two equal versions")] = 20
    trials: Annotated[int, typer.Option(min=1, max=100_000, help="of each kind of a worse canary")] = 20
    rate: Annotated[float, typer.Option(min=0.01, max=10_000, help="the canary's answers a second")] = 2.0
    seed: Annotated[int, typer.Option(min=0, help="the same seed, the same result")] = 1
    load: Annotated[
        float | None,
        typer.Option(min=0.01, max=100, help="count who loses the model at this share of the champion's capacity"),
    ] = None
    seeds: Annotated[
        int | None, typer.Option(min=1, max=1_000, help="of --load: how many, from --seed on (none: 5)")
    ] = None
    slow: Annotated[
        bool, typer.Option("--slow", help="roll out slower canaries at 0.3 and 0.8 of capacity, --trials of each kind")
    ] = False
    json_path: JsonPath = None


def simulate(options: SimulateOptions) -> None:
    """Count, in virtual time, how many answers an alarm takes, and how many equal versions are rolled back."""
    if options.slow and options.load is not None:
        raise typer.BadParameter(f"--load {options.load:g}: --slow simulates 0.3 and 0.8; leave one of them out")
    if options.seeds is not None and options.load is None:
        raise typer.BadParameter(f"--seeds {options.seeds}: belongs to --load; write --load 0.8, or leave it out")
    if options.load is not None:
        _simulate_load(options, options.load)
        return
    if options.slow:
        _simulate_slow(options)
        return
    from ops.lab.rollout.trials import table, trials
    from ops.measure.runner import write_json

    rows = trials(options.rollouts, options.trials, options.rate, options.seed, Console(stderr=True))
    typer.echo(table(rows))
    write_json(options.json_path, rows)


def _simulate_load(options: SimulateOptions, load: float) -> None:
    """Print how many requests lose the model without and with a rollout of an equal version, at each step."""
    from ops.lab.rollout.capacity import SHARES, table, trials
    from ops.lab.simulate.comparison import Comparison
    from ops.measure.runner import write_json
    from ops.traces.costs import read_costs

    experiment = Comparison(
        loads=(load,), slots=16, seconds=60.0, costs=read_costs("cpu"), settings=settings_of("rollout")
    )
    found = trials(experiment, "poisson", SHARES, range(options.seed, options.seed + (options.seeds or _SEEDS)))
    typer.echo(table(found))
    write_json(options.json_path, found)


def _simulate_slow(options: SimulateOptions) -> None:
    """Print how the rollouts of slower canaries end, and how many are promoted though they lose more questions."""
    from ops.lab.rollout.slow import table, trials
    from ops.measure.runner import write_json
    from ops.traces.costs import read_costs

    seeds = range(options.seed, options.seed + options.trials)
    found = trials(read_costs("cpu"), settings_of("rollout"), seeds, Console(stderr=True))
    typer.echo(table(found))
    write_json(options.json_path, found)
