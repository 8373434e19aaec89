"""Threads as greenlets of the world's schedule: a blocking call returns to the loop while virtual time passes."""

from collections import deque
from collections.abc import Callable
from queue import Empty
from typing import TYPE_CHECKING, Any

import greenlet

if TYPE_CHECKING:
    from tests.world.virtual.node import Node


class Threads:
    """The threads of one process, and the events they wait for."""

    def __init__(self, node: "Node") -> None:
        self._node = node
        self.alive: dict[VirtualThread, None] = {}

    def thread(self, run: Callable[[], None], name: str) -> "VirtualThread":
        """Return a thread that has not started."""
        return VirtualThread(self, run, name)

    def event(self) -> "VirtualEvent":
        """Return an event that is not set."""
        return VirtualEvent(self)

    def queue(self) -> "VirtualQueue":
        """Return an empty queue."""
        return VirtualQueue(self)

    def names(self) -> list[str]:
        """Return the names of the threads that run."""
        return [thread.name for thread in self.alive]

    def sleep(self, seconds: float) -> None:
        """Suspend a thread; on the loop's own thread, block the process."""
        if greenlet.getcurrent().parent is not None:
            self.block(seconds, lambda _: None)
        elif seconds > 0:
            self._node.freeze(seconds)

    def begin(self, green: "greenlet.greenlet") -> None:
        """Run a greenlet as soon as its process may run."""
        loop = self._node.loop
        green.gr_context = self._node.context.copy()
        loop.after(loop.lag_s() / 4, self._resume, green, False, node=self._node)

    def block(self, timeout_s: float | None, register: Callable[[Callable[[], None]], object]) -> bool:
        """Yield to the loop until woken (return True) or until the timeout (return False)."""
        green, loop = greenlet.getcurrent(), self._node.loop
        parent = green.parent
        assert parent is not None, "the loop itself would block"
        over = False

        def wake(woken: bool = True) -> None:
            nonlocal over
            if not over:
                over = True
                if timer is not None:
                    timer.cancel()
                loop.call_soon(self._resume, green, woken, context=self._node.context)

        timer = None if timeout_s is None else loop.after(timeout_s, wake, False, node=self._node)
        register(wake)
        return bool(parent.switch())

    @staticmethod
    def _resume(green: "greenlet.greenlet", woken: bool) -> None:
        if not green.dead:
            green.parent = greenlet.getcurrent()
            green.switch(woken)


class VirtualThread:
    """A thread (`shared.process.threads.Thread`)."""

    def __init__(self, threads: Threads, run: Callable[[], None], name: str) -> None:
        self.name, self._threads, self._target = name, threads, run
        self._joins: list[Callable[[], None]] = []
        self._ended = False

    def start(self) -> None:
        self._threads.alive[self] = None
        self._green = greenlet.greenlet(self._run)
        self._threads.begin(self._green)

    def _run(self, _: bool) -> None:
        try:
            self._target()
        finally:
            self._ended = True
            del self._threads.alive[self]
            for wake in self._joins:
                wake()

    def is_alive(self) -> bool:
        return self in self._threads.alive

    def join(self, timeout: float | None = None) -> None:
        if self.is_alive():
            self._threads.block(timeout, self._joins.append)


class VirtualEvent:
    """A flag (`shared.process.threads.Event`)."""

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._set = False
        self._waiting: list[Callable[[], None]] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for wake in waiting:
            wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set and (timeout is None or timeout > 0):
            self._threads.block(timeout, self._waiting.append)
        return self._set


class VirtualQueue:
    """A queue (`shared.process.threads.Queue`)."""

    def __init__(self, threads: Threads) -> None:
        self._came = VirtualEvent(threads)
        self._items: deque[Any] = deque()

    def put(self, item: Any) -> None:
        self._items.append(item)
        self._came.set()

    def get(self, *, timeout: float | None = None) -> Any:
        if not self._items:
            self._came.clear()
            self._came.wait(timeout)
        if not self._items:
            raise Empty
        return self._items.popleft()
