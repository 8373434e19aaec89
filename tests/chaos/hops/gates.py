"""The proxies between each process and Kafka and Redis, in a thread and an event loop of their own: starting a broker
holds up no byte.

Every gateway and worker has a way of its own to both, so that one of them can be parted from Kafka while the others are
not (`tests/chaos/hops/addresses.py`).
"""

import asyncio
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final, Self

import uvloop

from ops.stack.processes import free_port
from tests.chaos.faults.schedule import MEMBERS, SLOW, Fault, Kind
from tests.chaos.hops.hop import Hop
from tests.chaos.hops.proxy import Proxy
from tests.chaos.hops.weather import Weather
from tests.chaos.ledger.requests import Line

_START_S: Final = 10.0


@dataclass(slots=True)
class Gates:
    """Use as a context manager. `before` is what a `Fleet` takes; `lines` tells what was done."""

    lines: list[Line] = field(default_factory=list)
    _weather: dict[Hop, list[Weather]] = field(default_factory=dict)
    _bad: tuple[Kind, Sequence[Weather]] | None = None
    _timer: asyncio.TimerHandle | None = None
    _up: threading.Event = field(default_factory=threading.Event)
    _loop: asyncio.AbstractEventLoop | None = None
    _stop: asyncio.Event | None = None
    _thread: threading.Thread | None = None

    @property
    def before(self) -> Mapping[Hop, Sequence[Proxy]]:
        return {hop: [one.proxy for one in weather] for hop, weather in self._weather.items()}

    @property
    def carried_bytes(self) -> int:
        return sum(proxy.carried_bytes for proxies in self.before.values() for proxy in proxies)

    def strike(self, fault: Fault) -> None:
        """What is slow is slow for everybody; parted from Kafka is `fault.target` alone. It is over by itself, or by
        `relieve`."""
        met = self._weather[Hop.REDIS if fault.kind is Kind.SLOW_REDIS else Hop.KAFKA]
        self._call(self._worsen, fault, met if fault.kind in SLOW else [met[fault.target]])

    def relieve(self) -> None:
        """All is as it was."""
        self._call(self._clear)

    def _worsen(self, fault: Fault, met: Sequence[Weather]) -> None:
        who = f"process {fault.target}" if len(met) == 1 else "everybody"
        self._note(f"{fault.kind} of {who} for {fault.down_s} s")
        for weather in met:
            weather.worsen(fault.kind)
        self._bad = (fault.kind, met)
        self._timer = asyncio.get_running_loop().call_later(fault.down_s, self._clear)

    def _clear(self) -> None:
        if self._bad is None or self._timer is None:
            return
        (kind, met), self._bad = self._bad, None
        self._timer.cancel()
        for weather in met:
            weather.clear(kind)
        self._note(f"{kind} over")

    def _note(self, what: str) -> None:
        self.lines.append(Line(time.monotonic(), what))

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        assert self._loop is not None, "inside the context"
        self._loop.call_soon_threadsafe(callback, *args)

    async def _main(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with AsyncExitStack() as stack:
            ports = {Hop.KAFKA: [free_port() for _ in range(MEMBERS)], Hop.REDIS: [free_port()] * MEMBERS}
            for hop, targets in ports.items():
                proxies = [await stack.enter_async_context(Proxy("127.0.0.1", port)) for port in targets]
                self._weather[hop] = [Weather(proxy) for proxy in proxies]
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
