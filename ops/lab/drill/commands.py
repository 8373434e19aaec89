"""The options of `replyline drill`."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import HtmlPath, JsonPath, Token, command_typed
from ops.paths import FILE_TO_READ
from shared.errors import SettingsError
from shared.wire.fields import MAX_SEED


class DrillOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline drill`."""

    schedule: Annotated[
        Path,
        typer.Option(
            "--schedule",
            metavar="FILE",
            callback=FILE_TO_READ,
            help="TOML file with the fleet, the load and the faults",
        ),
    ]
    consent: Annotated[
        str | None, typer.Option(help="name of the fleet, to cause the faults; without it they are only listed")
    ] = None
    for_good: Annotated[bool, typer.Option("--irreversible", help="allow faults that the drill cannot undo")] = False
    token: Token = None
    seed: Annotated[int, typer.Option(min=0, max=MAX_SEED, help="seed of the questions and their times")] = 1
    json_path: JsonPath = None
    html_path: HtmlPath = None


def drill(options: DrillOptions) -> None:
    """Cause limited faults on your own fleet while questions are being asked, and report what customers experienced.

    Exit status: 0 if every promise was kept, 1 if one was broken or the drill had to stop, 2 if no fault was caused.
    """
    from ops.lab.drill.page import page, table
    from ops.lab.drill.run import run_drill
    from ops.lab.drill.schedule import read_schedule, refusal, said
    from ops.measure.runner import write_html, write_json
    from shared.settings import load_settings
    from shared.telemetry.logs import configure_logs

    schedule = read_schedule(options.schedule.read_bytes(), str(options.schedule))
    why_not = refusal(schedule, options.consent, for_good=options.for_good)
    if why_not is not None:
        for fault in schedule.drill:
            typer.echo(said(fault))
        raise SettingsError(why_not)
    configure_logs(load_settings().log, process="drill")
    rows = asyncio.run(run_drill(schedule, options.token, options.seed, lambda line: typer.echo(line, err=True)))
    typer.echo(table(rows))
    write_json(options.json_path, rows)
    if options.html_path is not None:
        date = datetime.now(UTC).date().isoformat()
        write_html(options.html_path, page(schedule, rows, command_typed(), date), Console(stderr=True))
    if not all(row.holds for row in rows):
        raise typer.Exit(1)
