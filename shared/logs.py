"""structlog to stdout: JSON unless on a terminal. No message text is ever logged."""

import logging
import sys
from typing import Any

import stamina.instrumentation
import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import FilteringBoundLogger

from shared.settings import LogSettings

# aiokafka logs each reconnect attempt with a traceback; what matters of it is said once, by our own shells.
_QUIET = {
    "aiokafka": logging.CRITICAL,
    "websockets": logging.CRITICAL,
    "asyncio": logging.WARNING,
    "opentelemetry": logging.CRITICAL,
}

_RETRIES_BETWEEN_LINES = 20


def configure_logs(settings: LogSettings, *, process: str) -> None:
    """Set up structlog and the standard library's logging for this process. Call once, first."""
    as_json = settings.format == "json" or (settings.format == "auto" and not sys.stdout.isatty())
    shared: list[Any] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    # Without the frames' locals: they hold what customers wrote.
    tracebacks = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
    plain = structlog.dev.RichTracebackFormatter(show_locals=False)
    renderer: list[Any] = (
        [tracebacks, structlog.processors.JSONRenderer()]
        if as_json
        else [structlog.dev.ConsoleRenderer(pad_event_to=28, exception_formatter=plain)]
    )
    level = logging.getLevelName(settings.level.upper())
    structlog.configure(
        processors=[*shared, *renderer],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(process=process)
    formatter = structlog.stdlib.ProcessorFormatter(
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *shared, *renderer]
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(formatter)
    logging.basicConfig(handlers=[handler], level=max(level, logging.WARNING), force=True)
    for name, quiet in _QUIET.items():
        logging.getLogger(name).setLevel(quiet)
    stamina.instrumentation.set_on_retry_hooks([_log_retry])


def get_logger() -> FilteringBoundLogger:
    logger: FilteringBoundLogger = structlog.get_logger()
    return logger


def _log_retry(details: stamina.instrumentation.RetryDetails) -> None:
    """One line when something is away, then one every now and then: not one a try."""
    if details.retry_num == 1 or details.retry_num % _RETRIES_BETWEEN_LINES == 0:
        get_logger().warning("unavailable", cause=str(details.caused_by), tries=details.retry_num, action="retrying")
