"""The proxies between each process and Kafka and Redis, in a separate thread and event loop: starting a broker delays
no byte.

Every gateway and worker has a separate route to both, so that one of them can be partitioned from Kafka while the
others are not.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Self

import uvloop

from ops.stack.processes import free_port
from tests.chaos.faults.schedule import MEMBERS, SLOW, Fault, Kind
from tests.chaos.hops.proxy import Proxy
from tests.chaos.ledger.requests import Line

_START_S: Final = 10.0


def kafka_listeners(port: int, controller_port: int, ways: Sequence[tuple[int, int]]) -> dict[str, str]:
    """Return the listener lines of server.properties for one node on 127.0.0.1: `port` for clients without a route, and
    for each of `ways` a listener on its first port that advertises its second. A Kafka client connects to the address
    in the metadata, and the broker returns the advertised address of the listener that received the request."""
    listeners = {"PLAINTEXT": (port, port)} | {f"WAY{number}": way for number, way in enumerate(ways)}
    controller = f"CONTROLLER://127.0.0.1:{controller_port}"
    return {
        "listeners": ",".join([*(f"{name}://127.0.0.1:{own}" for name, (own, _) in listeners.items()), controller]),
        "advertised.listeners": ",".join(f"{name}://127.0.0.1:{told}" for name, (_, told) in listeners.items()),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in [*listeners, "CONTROLLER"]),
    }


@dataclass(slots=True)
class Gates:
    """Use as a context manager. `kafka` and `redis` are the routes of each process, gateways first; `lines` lists the
    applied faults."""

    lines: list[Line] = field(default_factory=list)
    kafka: list[Proxy] = field(default_factory=list)
    redis: list[Proxy] = field(default_factory=list)
    _up: threading.Event = field(default_factory=threading.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _stop: asyncio.Event | None = None
    _thread: threading.Thread | None = None

    @property
    def carried_bytes(self) -> int:
        return sum(proxy.carried_bytes for proxy in [*self.kafka, *self.redis])

    def strike(self, fault: Fault) -> None:
        """Apply a fault that ends by itself. A slow dependency is slow for all processes; only `fault.target` is
        partitioned from Kafka."""
        met = self.redis if fault.kind is Kind.SLOW_REDIS else self.kafka
        self._call(self._worsen, fault, met if fault.kind in SLOW else [met[fault.target]])

    def _worsen(self, fault: Fault, met: Sequence[Proxy]) -> None:
        who = f"process {fault.target}" if len(met) == 1 else "everybody"
        self._note(f"{fault.kind} of {who} for {fault.down_s} s")
        for proxy in met:
            proxy.worsen(fault.kind)
        asyncio.get_running_loop().call_later(fault.down_s, self._clear, fault.kind, met)

    def _clear(self, kind: Kind, met: Sequence[Proxy]) -> None:
        for proxy in met:
            proxy.clear(kind)
        self._note(f"{kind} over")

    def _note(self, what: str) -> None:
        self.lines.append(Line(time.monotonic(), what))

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        assert self._loop is not None, "inside the context"
        self._loop.call_soon_threadsafe(callback, *args)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            redis_port = free_port()
            for _ in range(MEMBERS):
                self.kafka.append(await stack.enter_async_context(Proxy("127.0.0.1", free_port())))
                self.redis.append(await stack.enter_async_context(Proxy("127.0.0.1", redis_port)))
            self._up.set()
            await self._stop.wait()

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=lambda: uvloop.run(self._main()), name="gates", daemon=True)
        self._thread.start()
        assert self._up.wait(_START_S), "sockets on 127.0.0.1 take no time"
        return self

    def __exit__(self, *_: object) -> None:
        assert self._stop is not None, "inside the context"
        assert self._thread is not None, "inside the context"
        self._call(self._stop.set)
        self._thread.join()
