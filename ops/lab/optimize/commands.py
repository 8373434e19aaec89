"""The options of `replyline optimize`."""

import typer
from rich.console import Console

from ops.command_line import by_options
from ops.lab.optimize.options import DistillOptions, PruneOptions, QuantizeOptions
from shared.errors import SettingsError
from shared.process.extras import install_command

optimize_app = typer.Typer(help="Make a model smaller or faster, and measure what it costs.", no_args_is_help=True)


def quantize(options: QuantizeOptions) -> None:
    """Round a model's MLP to 8 bits for TensorRT. Below the bound, print one line, write nothing and exit with status
    1."""
    from ops.lab.optimize.quantize import quantize as run

    raise typer.Exit(run(options, Console(stderr=True)))


def distill(options: DistillOptions) -> None:
    """Train a model with LoRA to answer like examples, or like a larger model (`model prepare --adapter` merges the
    result)."""
    try:
        from ops.lab.optimize.distill import distill as run
    except ImportError as error:
        raise SettingsError(f"{error.name} is not installed; run: {install_command('distill')}") from None

    raise typer.Exit(run(options, Console(stderr=True)))


def prune(options: PruneOptions) -> None:
    """Remove the layers, KV groups and MLP channels that a model's answers need least, until it is as fast as asked."""
    from ops.lab.optimize.prune.program import prune as run

    raise typer.Exit(run(options, Console(stderr=True)))


for _command in (quantize, distill, prune):
    optimize_app.command()(by_options(_command))
