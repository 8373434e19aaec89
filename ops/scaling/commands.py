"""`replyline autoscale`: how many workers there should be, decided and simulated."""

import typer

from ops.command_line import WithLab, by_options
from ops.scaling.autoscale.commands import run, status

autoscale_app = typer.Typer(help="Decide how many workers there should be.", no_args_is_help=True, cls=WithLab)
autoscale_app.command()(by_options(run))
autoscale_app.command()(status)
