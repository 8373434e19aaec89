"""A process of the world: its schedule, clocks and threads, and its end."""

import asyncio
from collections import deque
from collections.abc import Callable
from contextvars import Context, ContextVar
from typing import TYPE_CHECKING, Any, Final

from shared.process.clock import CLOCKS, Clocks
from shared.process.threads import MACHINERY, Machinery
from tests.world.virtual.threads import Threads

if TYPE_CHECKING:
    from gateway.destination.admission import Admission
    from gateway.request.entry import Entry
    from tests.world.virtual.loop import VirtualLoop
    from tests.world.virtual.network import Pipe
    from workers.kv.cache import KvCache

_THAWED_S: Final = 1.0
NODE: Final[ContextVar["Node"]] = ContextVar("node")


class Handle(list[Any]):
    """A callback, its arguments and its context; a cancelled one has no callback. A list is the fastest to create."""

    __slots__ = ()

    def cancel(self) -> None:
        self[0] = None

    def cancelled(self) -> bool:
        return self[0] is None


class Node:
    """A process. `wall_off_s` is the error of its wall clock; `ready` holds the callbacks that its loop is to run, and
    makes it `awake`; `refetched_s` is when it last began to fetch other records from Kafka; `serves` is whether it has
    reported that it is ready."""

    def __init__(self, loop: "VirtualLoop", name: str) -> None:
        self.loop, self.name, self.alive = loop, name, True
        self.frozen_until_s = float("-inf")
        self.wall_off_s = 0.0
        self.refetched_s = float("-inf")
        self.handled = self.looked_at = 0
        self.hangs_since_s: float | None = None  # since when its engine hangs
        self.spoils = 0  # the number of KV imports to refuse
        self.kv: KvCache | None = None
        self.admission: Admission | None = None
        self.sent: dict[str, Entry] = {}  # the last question of each conversation
        self.serves = self.timed_out = self.awake = False
        self.ready: deque[Handle] = deque()
        self.tasks: list[asyncio.Task[Any]] = []
        self.pipes: dict[Pipe, None] = {}
        self.ports: list[int] = []
        self.ended: Callable[[], None] = lambda: None
        self.deaths: Callable[[], None] = lambda: None  # called when poison ends it
        self.threads = Threads(self)
        self.machinery = Machinery(
            thread=self.threads.thread,
            event=self.threads.event,
            queue=self.threads.queue,
            sleep=self.threads.sleep,
            names=self.threads.names,
            exit_after=self._exit_after,
            exit_never=self._exit_never,
        )
        self._exit: Handle | None = None
        self.context = Context()
        self.context.run(self._enter)

    def _enter(self) -> None:
        NODE.set(self)
        MACHINERY.set(self.machinery)
        CLOCKS.set(Clocks(self.loop.time, self.wall_s, cpu_s=lambda: 0.0))

    def wall_s(self) -> float:
        """Return what its wall clock says."""
        from tests.world.virtual.loop import EPOCH_S, START_S

        return EPOCH_S + self.loop.now - START_S + self.wall_off_s

    def freeze(self, seconds: float) -> None:
        """Run none of its callbacks for this long, as after SIGSTOP or while its loop is blocked."""
        self.frozen_until_s = max(self.frozen_until_s, self.loop.now + seconds)

    def kill(self) -> None:
        """End it like SIGKILL: none of its code runs again, and its peers receive a reset."""
        if self.alive:
            self.bury()
            for pipe in list(self.pipes):
                pipe.reset_peer()
            self.ended()

    def poisoned(self) -> None:
        """End it from one of its threads."""
        self.deaths()
        self.kill()
        self.threads.sleep(1e6)

    def bury(self) -> None:
        """Record its end."""
        self.alive = False
        self._exit_never()
        self.ready.clear()
        self.loop.network.forget(self.ports)

    def _exit_after(self, seconds: float) -> None:
        self._exit_never()
        self._exit = self.loop.after(seconds, self._time_out)

    def _time_out(self) -> None:
        """End it by the timer that needs neither its loop nor its threads; a frozen process's timer is frozen too."""
        if self.frozen_until_s > self.loop.now:
            self._exit_after(self.frozen_until_s - self.loop.now + _THAWED_S)
        else:
            self.timed_out = True
            self.kill()

    def _exit_never(self) -> None:
        if self._exit is not None:
            self._exit.cancel()
            self._exit = None
