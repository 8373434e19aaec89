"""Count and log an internal error of one item of many (a record, a reply, a deadline), so that the other items are
still processed."""

from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, Self

from shared.telemetry import metrics
from shared.telemetry.logs import get_logger
from shared.telemetry.metrics import Faulty

log: Final = get_logger()


def caught(what: Faulty, error: BaseException, **about: Any) -> None:
    """Count and log a fault. `about` identifies the item by its id, never by its content."""
    metrics.faults.labels(what).inc()
    log.error("fault", what=what, exc_info=error, **about)


def task_failed(name: str, error: BaseException) -> None:
    caught("task", error, task=name)


def record_failed(origin: str, error: BaseException) -> None:
    caught("record", error, origin=origin)


class contained:  # noqa: N801 - reads as a statement: `with contained("answer") as one:`
    """Catch an exception of the block, so that it affects only this item: count and log it.

    After the block `error` is the exception, or None.
    """

    __slots__ = ("_about", "_what", "error")

    def __init__(self, what: Faulty, **about: Any) -> None:
        self._what: Faulty = what
        self._about = about
        self.error: Exception | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(error, Exception):
            return False
        self.error = error
        caught(self._what, error, **self._about)
        return True


def contain_each(what: Faulty, *steps: Callable[[], object], **about: Any) -> None:
    """Run every step, even if earlier ones raise. Each exception is counted and logged."""
    for step in steps:
        with contained(what, **about):
            step()
