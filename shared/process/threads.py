"""Create threads, events and queues. The context may replace them, so that tests can run several processes in one
interpreter as threads of a simulated schedule.
"""

import faulthandler
import threading
import time
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any, Final, Protocol


class Thread(Protocol):
    """A thread; it runs after `start`."""

    def start(self) -> None: ...

    def is_alive(self) -> bool: ...

    def join(self, timeout: float | None = None) -> None: ...


class Event(Protocol):
    """A flag that a thread may wait for."""

    def is_set(self) -> bool: ...

    def set(self) -> None: ...

    def clear(self) -> None: ...

    def wait(self, timeout: float | None = None) -> bool: ...


class Queue(Protocol):
    """A queue that a thread may wait for. `get` raises `queue.Empty`."""

    def put(self, item: Any) -> None: ...

    def get(self, *, timeout: float | None = None) -> Any: ...


def _daemon(run: Callable[[], None], name: str) -> threading.Thread:
    return threading.Thread(target=run, name=name, daemon=True)


def _names() -> list[str]:
    return [thread.name for thread in threading.enumerate()]


def _exit_after(seconds: float) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True)


@dataclass(frozen=True, slots=True)
class Machinery:
    """Factories of threads, events and queues; by default the standard library's.

    `exit_after` ends the process with status 1 after a delay, even if it hangs, and prints its threads' stacks to
    stderr; `exit_never` cancels that.
    """

    thread: Callable[[Callable[[], None], str], Thread] = _daemon
    event: Callable[[], Event] = threading.Event
    queue: Callable[[], Queue] = SimpleQueue
    sleep: Callable[[float], None] = time.sleep
    names: Callable[[], list[str]] = _names
    exit_after: Callable[[float], None] = _exit_after
    exit_never: Callable[[], None] = faulthandler.cancel_dump_traceback_later


MACHINERY: Final = ContextVar("machinery", default=Machinery())  # noqa: B039 - frozen


def make_thread(run: Callable[[], None], name: str) -> Thread:
    """Return a daemon thread that has not started; if it hangs, it does not keep the process from ending."""
    return MACHINERY.get().thread(run, name)


def make_event() -> Event:
    """Return an event that is not set."""
    return MACHINERY.get().event()


def make_queue() -> Queue:
    """Return an empty queue."""
    return MACHINERY.get().queue()


def sleep(seconds: float) -> None:
    """Sleep in this thread."""
    MACHINERY.get().sleep(seconds)
