"""The customers, in a separate thread and event loop, so that starting a broker does not delay them.

They ask at the scheduled times, independent of the earlier questions' answers. Some of them connect through a proxy.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

import uvloop

from ops.measure.pacer import Pacer
from shared.errors import ReplylineError
from tests.chaos.actors.client import Customer, ended
from tests.chaos.faults.schedule import Fault, Kind
from tests.chaos.hops.proxy import Proxy
from tests.chaos.ledger.requests import Ledger, Line, Question

_ONLINE_S: Final = 30.0
_PATIENCE_S: Final = 12.0
_POLL_S: Final = 0.25
_LAG_POLL_S: Final = 0.02
_HALF_OPEN: Final = (Kind.TIMEOUT, Kind.SLOW_CLOSE)


class LoadFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "load_failed"


@dataclass(slots=True, kw_only=True)
class Load:
    """`run` in a thread; `begun` is set when the first question may be due. `start_s` is that moment, `lag_s` how late
    the customers' own loop was at worst: no time of theirs is truer. `proxied_share` of the connections are made
    through a proxy."""

    ledger: Ledger
    gateway_ports: Sequence[int]
    questions: Sequence[Question]
    times_s: Sequence[float]
    seed: int
    proxied_share: float = 0.5
    begun: threading.Event = field(default_factory=threading.Event)
    lines: list[Line] = field(default_factory=list)
    start_s: float = 0.0
    lag_s: float = 0.0
    failure: str | None = None
    proxies: list[Proxy] = field(default_factory=list)
    _customers: dict[str, Customer] = field(default_factory=dict)
    _loop: asyncio.AbstractEventLoop | None = None
    _stop: asyncio.Event | None = None
    _asked_enough: bool = False

    def run(self) -> None:
        """Run until every question has ended, or cannot end any more. An error is stored in `failure`."""
        try:
            uvloop.run(self._main())
        except ReplylineError as error:
            self.failure = str(error)
        finally:
            self.begun.set()

    def strike(self, fault: Fault) -> None:
        """From any thread."""
        self._call(self._carry_out, fault)

    def stop(self) -> None:
        """Stop immediately; callable from any thread."""
        if self._stop is not None:
            self._call(self._stop.set)

    def ask_no_more(self) -> None:
        """Send no further questions and end once all open ones are settled. May be called from any thread."""
        self._asked_enough = True

    def _call(self, callback: Callable[..., object], *args: object) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *args)

    async def _main(self) -> None:
        self._stop, self._loop = asyncio.Event(), asyncio.get_running_loop()
        async with AsyncExitStack() as stack:
            for port in self.gateway_ports:
                self.proxies.append(await stack.enter_async_context(Proxy("127.0.0.1", port)))
            chance = random.Random(f"{self.seed}/customers")
            for session in dict.fromkeys(question.session for question in self.questions):
                customer = Customer(session, self.ledger, lambda: self._door(chance), chance)
                self._customers[session] = customer
            tasks = [asyncio.create_task(customer.run()) for customer in self._customers.values()]
            tasks.append(asyncio.create_task(self._watch_lag()))
            try:
                await self._all_online()
                await self._ask_all()
            finally:
                for task in tasks:
                    await ended(task)

    async def _all_online(self) -> None:
        try:
            async with asyncio.timeout(_ONLINE_S):
                for customer in self._customers.values():
                    await customer.online.wait()
        except TimeoutError:
            raise LoadFailed(f"not every client has a session after {_ONLINE_S:.0f} s") from None

    async def _ask_all(self) -> None:
        assert self._stop is not None, "set before"
        self.start_s = time.monotonic()
        self.begun.set()
        due_s = [self.start_s + at_s for at_s in self.times_s]
        pacer = Pacer(due_s, lambda index: self._ask(self.questions[index]))
        last_s = max(at_s + one.deadline_ms / 1_000 for at_s, one in zip(due_s, self.questions, strict=True))
        try:
            while not self._stop.is_set() and not (pacer.finished and self.ledger.num_open == 0):
                if self._asked_enough:
                    pacer.skip_rest()
                if time.monotonic() > last_s + _PATIENCE_S:
                    break
                await asyncio.sleep(_POLL_S)
            await asyncio.sleep(_POLL_S)  # for duplicates
        finally:
            pacer.close()

    def _ask(self, question: Question) -> None:
        self._customers[question.session].ask(question)

    def _door(self, chance: random.Random) -> tuple[str, str]:
        number = chance.randrange(len(self.gateway_ports))
        if chance.random() >= self.proxied_share:
            return f"gateway-{number}", f"ws://127.0.0.1:{self.gateway_ports[number]}/ws"
        return _proxy_name(number), f"ws://127.0.0.1:{self.proxies[number].port}/ws"

    async def _watch_lag(self) -> None:
        while True:
            asleep_s = time.monotonic()
            await asyncio.sleep(_LAG_POLL_S)
            if not self.start_s:
                continue
            awake_s = time.monotonic()
            lag_s = awake_s - asleep_s - _LAG_POLL_S
            self.lag_s = max(self.lag_s, lag_s)
            if lag_s > _LAG_POLL_S:
                self.ledger.stalls.append((awake_s - lag_s, awake_s))

    def _carry_out(self, fault: Fault) -> None:
        if fault.kind is Kind.CUT:
            customers = list(self._customers.values())
            customers[fault.target % len(customers)].cut()
            return
        self.lines.append(Line(time.monotonic(), f"proxy {fault.target}: {fault.kind} for {fault.down_s} s"))
        self.proxies[fault.target].worsen(fault.kind)
        if fault.kind in _HALF_OPEN:
            for customer in self._customers.values():
                customer.cannot_be_reached(_proxy_name(fault.target))
        asyncio.get_running_loop().call_later(fault.down_s, self._clear, fault)

    def _clear(self, fault: Fault) -> None:
        self.proxies[fault.target].clear(fault.kind)
        self.lines.append(Line(time.monotonic(), f"proxy {fault.target}: as it was"))


def _proxy_name(number: int) -> str:
    return f"gateway-{number} through its proxy"
