"""Tracebacks for a terminal, without the texts that exceptions quote. Needs the extra `ops`."""

from typing import TextIO

from rich.console import Console
from rich.traceback import Trace, Traceback
from structlog.typing import ExcInfo

from shared.telemetry.quotes import without_quotes


def show_exception(out: TextIO, exc_info: ExcInfo) -> None:
    """Render a traceback for a terminal without the texts that its exceptions quote; a structlog formatter."""
    trace = Traceback.extract(*exc_info, show_locals=False)
    _leave_quotes_out_of(trace)
    out.write("\n")
    Console(file=out, color_system="truecolor").print(Traceback(trace, width=None, word_wrap=True))


def _leave_quotes_out_of(trace: Trace) -> None:
    for one in trace.stacks:
        one.exc_value = without_quotes(one.exc_value)
        # a new list, because the old one belongs to the exception
        one.notes = [without_quotes(note) for note in one.notes]
        for inner in one.exceptions:
            _leave_quotes_out_of(inner)
