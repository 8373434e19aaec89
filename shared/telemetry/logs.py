"""Log with structlog to stdout: JSON unless it is a terminal. No message text is ever logged."""

import logging
import re
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

import stamina.instrumentation
import structlog
from rich.console import Console
from rich.traceback import Trace, Traceback
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import ExcInfo, FilteringBoundLogger

from shared.settings import LogSettings

# aiokafka logs each reconnect attempt with a traceback; Replyline's own clients log an outage once.
_QUIET = {
    "aiokafka": logging.CRITICAL,
    "websockets": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "opentelemetry": logging.CRITICAL,
}

_RETRIES_BETWEEN_LINES = 20

# From the first quotation mark to the last: an exception may quote a customer's text (`could not convert string to
# float: 'my card is …'`, or a whole KeyError).
_QUOTED: Final = re.compile(r"""['"].*['"]""", re.DOTALL)


def configure_logs(settings: LogSettings, *, process: str) -> None:
    """Configure structlog and the standard library's logging. Call once, before anything else logs."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _naming(process),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: list[Any] = (
        [render_exception, structlog.processors.JSONRenderer()]
        if not sys.stdout.isatty()
        else [structlog.dev.ConsoleRenderer(pad_event_to=28, exception_formatter=show_exception)]
    )
    level = logging.getLevelName(settings.level.upper())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, *renderer]
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    stamina.instrumentation.set_on_retry_hooks([_log_retry])


def _naming(process: str) -> Callable[[Any, str, MutableMapping[str, Any]], MutableMapping[str, Any]]:
    """Return a structlog processor that adds the process's name to each line, from any thread."""

    def name_process(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        del logger, method
        event["process"] = process
        return event

    return name_process


# Without the frames' local variables, which contain customers' texts.
_as_dicts: Final = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))


def render_exception(logger: Any, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Render a traceback as data without the texts that its exceptions quote; a structlog processor."""
    event = _as_dicts(logger, method, event)
    if isinstance(traces := event.get("exception"), list):
        _leave_out_quotes(traces)
    return event


def _leave_out_quotes(traces: list[dict[str, Any]]) -> None:
    for one in traces:
        one["exc_value"] = _QUOTED.sub("'…'", one["exc_value"])
        one["exc_notes"] = [_QUOTED.sub("'…'", note) for note in one.get("exc_notes", ())]
        for inner in one.get("exceptions", ()):  # an exception group's, each with the same structure
            _leave_out_quotes(inner)


def show_exception(out: TextIO, exc_info: ExcInfo) -> None:
    """Render a traceback for a terminal without the texts that its exceptions quote; a structlog formatter."""
    trace = Traceback.extract(*exc_info, show_locals=False)
    _leave_quotes_out_of(trace)
    out.write("\n")
    Console(file=out, color_system="truecolor").print(Traceback(trace, width=None, word_wrap=True))


def _leave_quotes_out_of(trace: Trace) -> None:
    for one in trace.stacks:
        one.exc_value = _QUOTED.sub("'…'", one.exc_value)
        # a new list, because the old one belongs to the exception
        one.notes = [_QUOTED.sub("'…'", note) for note in one.notes]
        for inner in one.exceptions:
            _leave_quotes_out_of(inner)


def log_unhandled(loop: AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log an exception of the event loop. asyncio's own handler would log a callback's arguments, which contain
    replies."""
    del loop
    error = context.get("exception")
    what = {"exc_info": error} if error is not None else {"cause": context["message"]}
    get_logger().error("unhandled", **what)


def get_logger() -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """Log the first retry, and then only every 20th."""
    if details.retry_num == 1 or details.retry_num % _RETRIES_BETWEEN_LINES == 0:
        get_logger().warning("unavailable", cause=str(details.caused_by), tries=details.retry_num, action="retrying")
