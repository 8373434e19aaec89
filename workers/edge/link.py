"""Keep in touch with the centre: ask for new erasures, measure the round trip, and detect when the centre is
unreachable and when it is back.

While the centre does not answer, a new attempt starts every quarter of a second, even if an earlier one has not ended.
TCP retransmits over a cut link after a delay that doubles, so a single attempt could wait long after the link is back.
The first attempt that is answered counts.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from shared.conversation.erasure_log import Missed
from shared.errors import BrokerUnavailable, StoreUnavailable
from shared.process.clock import monotonic_s
from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from workers.edge.centre_pages import CentreAway
from workers.edge.link_time import MOST_WAIT_MS, LinkTime

_ATTEMPT_INTERVAL_S: Final = 0.25


@dataclass(frozen=True, slots=True)
class Asked:
    """The erasures from the place `after` on; None: of an edge that asks for the first time. `took_ms` is the round
    trip's."""

    after: int | None
    missed: Missed
    took_ms: float


@dataclass(slots=True, kw_only=True)
class Link:
    """Owned by the event loop. `ask` asks the centre once and raises `CentreAway`; `receive` handles what it says;
    `reconnect` drops the open connections. `busy_s` is how long what is being sent holds up a question.

    `up` is set while the centre answers, and `back_s` is when it last began to."""

    ask: Callable[[], Awaitable[Asked]]
    receive: Callable[[Missed, int | None], Awaitable[None]]
    reconnect: Callable[[], Awaitable[None]]
    busy_s: Callable[[], float]
    time: LinkTime
    poll_s: float
    back_s: float = field(default=float("-inf"), init=False)
    up: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _down: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _centre: Availability = field(default_factory=lambda: Availability("centre"), init=False)

    async def run(self) -> None:
        """Keep in touch until cancelled."""
        metrics.edge_cut_off.set(1)
        while True:
            with suppress(StoreUnavailable, BrokerUnavailable):  # the history and the producer log it
                await (self._ask_in_time() if self.up.is_set() else self._reach())
            with suppress(TimeoutError):
                async with asyncio.timeout(self.poll_s):
                    await self._down.wait()
            self._down.clear()

    def lost(self, cause: str) -> None:
        """Note that the centre does not answer, until it does."""
        self._centre.mark_down(cause, action="this edge answers by itself")
        self.up.clear()
        self._down.set()
        metrics.edge_cut_off.set(1)

    async def _ask_in_time(self) -> None:
        try:
            async with asyncio.timeout(self.time.wait_ms / 1_000 + self.busy_s()):
                asked = await self.ask()
        except (CentreAway, TimeoutError) as error:
            self.time.back_off()
            self.lost(str(error) or "it does not answer in time")
            await self.reconnect()
            return
        self.time.add_sample(asked.took_ms)
        metrics.edge_link.set((self.time.round_trip_ms or 0.0) / 1_000)
        await self.receive(asked.missed, asked.after)

    async def _reach(self) -> None:
        """Ask until an answer comes. How long it took is not known: several were under way."""
        asked = await self._first_answer()
        self.time.restart()
        self.back_s = monotonic_s()
        self._centre.mark_up()
        self._down.clear()
        self.up.set()
        metrics.edge_cut_off.set(0)
        await self.receive(asked.missed, asked.after)

    async def _first_answer(self) -> Asked:
        """Start attempts until one is answered; cancel the others."""
        attempts: set[asyncio.Task[Asked | CentreAway]] = set()
        try:
            while True:
                attempts.add(asyncio.create_task(self._attempt(), name="reach the centre"))
                until_s = monotonic_s() + _ATTEMPT_INTERVAL_S
                while attempts and (left_s := until_s - monotonic_s()) > 0:
                    done, attempts = await asyncio.wait(attempts, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
                    for each in done:
                        if isinstance(found := each.result(), Asked):
                            return found
                        self._centre.mark_down(str(found), action="this edge answers by itself")
                        if found.answered:  # and refused: it is not the link that ails
                            until_s = monotonic_s() + self.poll_s
                await asyncio.sleep(until_s - monotonic_s())
        finally:
            for each in attempts:
                each.cancel()
            await asyncio.gather(*attempts, return_exceptions=True)

    async def _attempt(self) -> Asked | CentreAway:
        """Ask once, and wait as long as any link may take: this one may have become slower."""
        try:
            async with asyncio.timeout(MOST_WAIT_MS / 1_000 + self.busy_s()):
                return await self.ask()
        except CentreAway as error:
            return error
        except TimeoutError:
            return CentreAway("it does not answer in time")
