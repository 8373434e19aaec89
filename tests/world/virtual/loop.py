"""An event loop in virtual time that runs several processes.

Each callback carries its process (`Node`) in its context. Within a process callbacks run in the order in which they
became ready, as asyncio promises; the seed decides which process runs next. Time jumps to the next timer.
"""

import asyncio
import heapq
import random
from collections.abc import Callable, Coroutine
from contextvars import Context, copy_context
from math import inf
from typing import Any, Final

from tests.world.virtual.network import Network
from tests.world.virtual.node import NODE, Handle, Node

START_S: Final = 1_000.0  # of the monotonic clock
EPOCH_S: Final = 1_800_000_000.0
_COST_S: Final = 2e-6  # of a callback
_LOOK_S: Final = 0.1
_SPIN: Final = 3_000  # callbacks of one process in that time
_MOST: Final = 2_000_000  # callbacks of a world
_LAG_S: Final = (0.0001, 0.002)


class DeadlockError(Exception):
    """Nothing will ever happen, or too much has."""


class VirtualFuture(asyncio.Future):  # type: ignore[type-arg]
    """A future whose hash is its number, so that a set of futures has the same order in every run."""

    number: int

    def __hash__(self) -> int:
        return self.number


class VirtualTask(asyncio.Task):  # type: ignore[type-arg]
    """A task whose hash is its number."""

    def __init__(self, number: int, coroutine: Any, **options: Any) -> None:
        self._number = number  # before a task is in any set
        super().__init__(coroutine, **options)

    def __hash__(self) -> int:
        return self._number


class VirtualLoop(asyncio.BaseEventLoop):
    """The loop, its clock and its processes. `trace` records all deliveries."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.now = START_S
        self.chance = chance
        self.trace: Callable[..., None] = lambda *_: None
        self.network = Network(self)
        self.world = Node(self, "world")
        self.nodes = [self.world]
        self.spins: dict[str, int] = {}
        self._look_s = 0.0
        self._timers: list[tuple[float, int, Handle]] = []
        self._made = 0
        self._awake: list[Node] = []  # those with something to run

    # --- processes

    def node(self, name: str) -> Node:
        """Return a new process, without a task."""
        made = Node(self, name)
        self.nodes.append(made)
        return made

    def start(self, node: Node, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Run a coroutine as a process's own."""
        return self.create_task(work, name=node.name, context=node.context.copy())

    @property
    def handled(self) -> int:
        """Return how many callbacks have run."""
        return sum(node.handled for node in self.nodes)

    def lag_s(self) -> float:
        """Return the delay of a message, in seconds."""
        return _LAG_S[0] + self.chance.random() * (_LAG_S[1] - _LAG_S[0])

    # --- asyncio's contract

    def time(self) -> float:
        return self.now

    def create_future(self) -> VirtualFuture:
        self._made += 1
        future = VirtualFuture(loop=self)
        future.number = self._made
        return future

    def create_task(self, coro: Any, *, name: Any = None, context: Any = None) -> "asyncio.Task[Any]":
        self._made += 1
        options = {} if context is None else {"context": context}
        task = VirtualTask(self._made, coro, loop=self, name=name, **options)
        node = NODE.get(self.world) if context is None else context.get(NODE, self.world)
        node.tasks.append(task)  # keeps a killed process's coroutines: a collected coroutine would run its `finally`
        return task

    def call_soon(self, callback: Any, *args: Any, context: Context | None = None) -> Handle:  # type: ignore[override]
        handle = Handle((callback, args, copy_context() if context is None else context))
        self._put(handle)
        return handle

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Handle:
        handle = Handle((callback, args, copy_context() if context is None else context))
        self._made += 1
        heapq.heappush(self._timers, (when, self._made, handle))
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Any, *args: Any, context: Context | None = None
    ) -> Handle:
        return self.call_at(self.now + delay, callback, *args, context=context)

    def after(self, delay_s: float, callback: Callable[..., Any], *args: Any, node: Node | None = None) -> Handle:
        """Call later, in this process, or in the world's own process if none is named."""
        return self.call_at(self.now + delay_s, callback, *args, context=(node or self.world).context)

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., Any], *args: Any
    ) -> "asyncio.Future[Any]":
        del executor
        future, node = self.create_future(), NODE.get(self.world)

        def work() -> None:
            try:
                value = func(*args)
            except BaseException as error:  # noqa: BLE001 - passed to the waiting coroutine
                self.call_soon(_settle, future.set_exception, future, error, context=node.context)
            else:
                self.call_soon(_settle, future.set_result, future, value, context=node.context)

        node.machinery.thread(work, "executor").start()
        return future

    async def create_server(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: int | None = None, **_: Any
    ) -> Any:
        return self.network.listen(NODE.get(), factory, port or 0)

    async def create_connection(  # type: ignore[override]
        self, factory: Any, host: Any = None, port: int | None = None, **_: Any
    ) -> Any:
        await asyncio.sleep(self.lag_s())
        return self.network.connect(NODE.get(), factory, port or 0)

    get_debug = bool  # always false, and cheap: each future reads it

    def _process_events(self, event_list: Any) -> None: ...

    def _write_to_self(self) -> None: ...

    async def shutdown_default_executor(self, *_: Any) -> None: ...

    # --- the schedule

    def _put(self, handle: Handle) -> None:
        node = handle[2].get(NODE, self.world)
        if node.alive:
            if not node.awake:
                node.awake = True
                self._awake.append(node)
            node.ready.append(handle)

    def _run_once(self) -> None:
        """Run until stopped."""
        timers, awake, random = self._timers, self._awake, self.chance.random
        while not self._stopping:  # type: ignore[attr-defined]
            while timers and timers[0][0] <= self.now:
                handle = heapq.heappop(timers)[2]
                if handle[0] is not None:
                    self._put(handle)
            if not awake:
                self._pass_time()
                continue
            node = awake[int(random() * len(awake))] if len(awake) > 1 else awake[0]
            if node.frozen_until_s > self.now:
                able = [node for node in awake if node.frozen_until_s <= self.now]
                if not able:
                    self._pass_time()
                    continue
                node = able[int(random() * len(able))]
            self._run_node(node)
            if not node.ready:
                node.awake = False
                awake.remove(node)

    def _pass_time(self) -> None:
        """Jump to the next timer, or to the moment a frozen process continues."""
        timers = self._timers
        while timers and timers[0][2][0] is None:
            heapq.heappop(timers)
        moment = min([node.frozen_until_s for node in self._awake]) if self._awake else inf
        if timers:
            moment = min(moment, timers[0][0])
        if moment == inf:
            raise DeadlockError("nothing will ever happen")
        self.now = max(self.now, moment)

    def _run_node(self, node: Node) -> None:
        """Run the ready callbacks of one process, like one iteration of an asyncio loop."""
        if self.now >= self._look_s:
            self._look_for_spins()
        ready = node.ready
        for _ in range(len(ready)):
            if not ready or node.frozen_until_s > self.now:
                break
            callback, args, context = ready.popleft()
            if callback is not None:
                node.handled += 1
                self.now += _COST_S
                try:
                    context.run(callback, *args)
                except (SystemExit, KeyboardInterrupt):
                    raise
                except BaseException as error:  # noqa: BLE001 - passed to the loop's handler, as in asyncio
                    self.call_exception_handler({"message": f"in {callback}", "exception": error})

    def _look_for_spins(self) -> None:
        self._look_s = self.now + _LOOK_S
        for node in self.nodes:
            if node.handled - node.looked_at > _SPIN:
                self.spins[node.name] = self.spins.get(node.name, 0) + 1
            node.looked_at = node.handled
        if (handled := self.handled) > _MOST:
            raise DeadlockError(f"{handled} callbacks within {self.now - START_S:.3f} s: {self.spins}")


def _settle(settle: Callable[[Any], None], future: "asyncio.Future[Any]", value: Any) -> None:
    if not future.done():
        settle(value)
