"""`replyline autoscale`: how many workers there should be, decided and simulated."""

import typer

from ops.command_line import by_options
from ops.scaling.autoscale.commands import run, status
from ops.scaling.fleet.commands import simulate

autoscale_app = typer.Typer(help="Decide how many workers there should be.", no_args_is_help=True)
autoscale_app.command()(by_options(run))
autoscale_app.command()(status)
autoscale_app.command()(by_options(simulate))
