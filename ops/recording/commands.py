"""The options of `replyline record` and `replyline replay`."""

import shlex
import sys
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from shared.errors import SettingsError
from shared.settings import load_settings
from shared.telemetry.logs import configure_logs

_MOST_MINUTES: Final = 10_080.0


def record(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="to be written; must not exist")],
    minutes: Annotated[float, typer.Option(help="ends after so long")] = 10.0,
    requests: Annotated[int, typer.Option(min=1, max=5_000_000, help="ends after so many")] = 1_000_000,
) -> None:
    """Write what is asked from now on into a file: times, lengths, deadlines; words only of who has consented."""
    from ops.recording.record import RecordOptions
    from ops.recording.record import record as run
    from shared.process.lifetime import run_until_signal

    if not 0 < minutes <= _MOST_MINUTES:
        raise SettingsError(f"--minutes {minutes:g}: must be above 0, and {_MOST_MINUTES:g} at most")
    settings = load_settings()
    configure_logs(settings.log, process="record")
    options = RecordOptions(path=path, minutes=minutes, requests=requests)
    raise typer.Exit(run_until_signal(lambda stop: run(options, settings, stop, Console(stderr=True))))


def replay(
    path: Annotated[Path, typer.Argument(metavar="FILE", help="of `replyline record`")],
    url: Annotated[
        str, typer.Option("--url", envvar="REPLYLINE_URL", help="the gateway's WebSocket address")
    ] = "ws://127.0.0.1:8080/ws",
    token: Annotated[
        str | None, typer.Option("--token", envvar="REPLYLINE_TOKEN", help="who asks, for all of them")
    ] = None,
    speed: Annotated[float, typer.Option(help="2: in half the time; deadlines stay as they were")] = 1.0,
    json_path: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="write the result, with stable keys")
    ] = None,
    html_path: Annotated[
        Path | None, typer.Option("--html", metavar="FILE", help="write a report that a browser shows, in one file")
    ] = None,
) -> None:
    """Ask what was recorded again: original spacing and deadlines, each conversation over a connection of its own."""
    from ops.measure.runner import run_bench
    from ops.recording.replay import ReplayOptions
    from ops.recording.replay import replay as run

    options = ReplayOptions(path=path, url=url, token=token, speed=speed, json_path=json_path, html_path=html_path)
    options.check()
    command = shlex.join(["replyline", *sys.argv[1:]])
    raise typer.Exit(run_bench(lambda: run(options, command, Console(stderr=True))))
