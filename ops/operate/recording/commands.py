"""The options of `replyline record` and `replyline replay`."""

import typer
from rich.console import Console

from ops.command_line import settings_of
from ops.operate.recording.options import RecordOptions


def record(options: RecordOptions) -> None:
    """Record new requests: times, lengths, deadlines, and the text only of customers who have consented."""
    from ops.operate.recording.record import record as run_record
    from shared.process.lifetime import run_until_signal

    settings = settings_of("record")
    raise typer.Exit(run_until_signal(lambda stop: run_record(options, settings, stop, Console(stderr=True))))
