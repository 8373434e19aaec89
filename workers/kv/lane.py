"""A thread that does one thing after the other, and looks after what it owns while there is nothing to do."""

from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty
from typing import TypeVar

from shared.process.threads import make_queue, make_thread
from shared.telemetry.logs import get_logger

T = TypeVar("T")

log = get_logger()


class Lane:
    """`idle_due_s` says after how long without work `idle` is to be called (None: never); both run on the thread.

    The thread is a daemon: what hangs in a system call does not hold up the process's end.
    """

    def __init__(self, name: str, *, idle: Callable[[], object], idle_due_s: Callable[[], float | None]) -> None:
        self._idle = idle
        self._idle_due_s = idle_due_s
        self._queue = make_queue()
        self._thread = make_thread(self._run, name)

    def start(self) -> None:
        self._thread.start()

    def submit(self, work: Callable[[], T]) -> "Future[T]":
        """Submit a call from any thread. The future may be cancelled until its turn comes."""
        future: Future[T] = Future()

        def run() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(work())
            except Exception as error:  # noqa: BLE001 - whoever waits gets it
                future.set_exception(error)

        self._queue.put(run)
        return future

    def close(self, timeout_s: float) -> None:
        """Do what was submitted, then end; at most `timeout_s` are waited for."""
        if self._thread.is_alive():
            self._queue.put(None)
            self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            try:
                run: Callable[[], None] | None = self._queue.get(timeout=self._idle_due_s())
            except Empty:
                self._look_after()
                continue
            if run is None:
                return
            run()
            del run  # what it gave is its asker's alone

    def _look_after(self) -> None:
        try:
            self._idle()
        except Exception:  # a fault of our own: without the thread nobody's work would ever be done
            log.exception("kv_idle_failed")
