"""Log with structlog to stdout: JSON unless it is a terminal. No message text is ever logged."""

import logging
import sys
from asyncio import AbstractEventLoop
from collections.abc import Callable, MutableMapping
from contextlib import suppress
from typing import Any, Final, TextIO, cast

import stamina.instrumentation
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import FilteringBoundLogger

from shared.settings import LogSettings
from shared.telemetry.quotes import without_quotes

# aiokafka logs each reconnect attempt with a traceback; Replyline's own clients log an outage once.
_QUIET = {
    "aiokafka": logging.CRITICAL,
    "websockets": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "opentelemetry": logging.CRITICAL,
}

_RETRIES_BETWEEN_LINES = 20


def configure_logs(settings: LogSettings, *, process: str) -> None:
    """Configure structlog and the standard library's logging. Call once, before anything else logs."""
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        _naming(process),
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    stdout = cast("TextIO", _Stdout())
    renderer = _for_terminal() if sys.stdout.isatty() else None
    renderer = renderer or [render_exception, structlog.processors.JSONRenderer()]
    level = logging.getLevelName(settings.level.upper())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(stdout),
        cache_logger_on_first_use=True,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, *renderer]
    )
    handler = logging.StreamHandler(stdout)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    stamina.instrumentation.set_on_retry_hooks([_log_retry])


class _Stdout:
    """Stdout without the lines that cannot be written: a full disk or a log reader that is gone fails no answer."""

    def write(self, text: str) -> None:
        with suppress(OSError):
            sys.stdout.write(text)

    def flush(self) -> None:
        with suppress(OSError):
            sys.stdout.flush()


def _for_terminal() -> list[Any] | None:
    """Return the renderer for a terminal; None if the extra `ops`, which draws tracebacks, is not installed."""
    try:
        from shared.telemetry.terminal import show_exception
    except ModuleNotFoundError:
        return None
    return [structlog.dev.ConsoleRenderer(pad_event_to=28, exception_formatter=show_exception)]


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
        one["exc_value"] = without_quotes(one["exc_value"])
        one["exc_notes"] = [without_quotes(note) for note in one.get("exc_notes", ())]
        for inner in one.get("exceptions", ()):  # an exception group's, each with the same structure
            _leave_out_quotes(inner)


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
