"""The options of `replyline record` and `replyline replay`."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct
from rich.console import Console

from ops.command_line import DEFAULT_URL, HtmlPath, JsonPath, Token, UrlOfGateway, command_typed, run, settings_of


class RecordOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline record`. The limit that is reached first ends the recording."""

    path: Annotated[Path, typer.Argument(metavar="FILE", help="file to write; must not exist")]
    minutes: Annotated[float, typer.Option(min=0.001, max=10_080, help="end after this many minutes")] = 10.0
    requests: Annotated[int, typer.Option(min=1, max=5_000_000, help="end after this many requests")] = 1_000_000


def record(options: RecordOptions) -> None:
    """Record new requests: times, lengths, deadlines, and the text only of customers who have consented."""
    from ops.load.recording.record import record as run_record
    from shared.process.lifetime import run_until_signal

    settings = settings_of("record")
    raise typer.Exit(run_until_signal(lambda stop: run_record(options, settings, stop, Console(stderr=True))))


class ReplayOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline replay`."""

    path: Annotated[Path, typer.Argument(metavar="FILE", help="file of `replyline record`")]
    url: UrlOfGateway = DEFAULT_URL
    token: Token = None
    speed: Annotated[
        float, typer.Option(min=0.001, max=1_000, help="2: in half the time; deadlines are not changed")
    ] = 1.0
    json_path: JsonPath = None
    html_path: HtmlPath = None


def replay(options: ReplayOptions) -> None:
    """Send recorded requests again, with their original spacing and deadlines, each conversation over its own
    connection."""
    from ops.load.recording.replay import replay as run_replay

    run(lambda: run_replay(options, command_typed(), Console(stderr=True)))
