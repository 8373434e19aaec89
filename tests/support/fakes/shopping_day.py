"""A day at the shop: everybody who may ask, in every way that an answer may end, and who comes afterwards."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, Final

from shared.process.clock import CLOCKS, Clocks
from shared.wire.messages import (
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffRequest,
    ResponseCancel,
    SessionDelete,
    SessionDeleted,
)
from tests.support.fakes.instant_loop import run_at_once
from tests.support.fakes.shoppers import Outcome, Shopper, request, service_told, services_outcome
from tests.support.fakes.whole_path import STEP_S, TOPICS, Shop

SOFT_MS, HARD_MS, LONG, SHORT = 400, 500, 20, 4
SECONDS: Final = 1_000_000_000  # where milliseconds are asked for


@dataclass(repr=False)
class Day:
    """Everybody who asks, at once: what became of each."""

    shop: Shop = field(default_factory=Shop)
    shoppers: dict[str, Shopper] = field(default_factory=dict)
    services: list[str] = field(default_factory=list)

    async def run(self) -> None:
        self.shop.broker.laggards = {b"demo/slow"}
        self.shop.begin()
        try:
            flows = (self.plain, self.cut, self.slow, self.stopped, self.moved, self.stranded, self.erased, self.person)
            async with asyncio.TaskGroup() as group:
                for flow in flows:
                    group.create_task(flow())
                group.create_task(self.ask_as_services())
                group.create_task(self.catch_up())
            await self.late()
            await asyncio.sleep(0.5)
            over = {task.get_name(): task.exception() for task in self.shop.tasks if task.done()}
            assert over == {}, f"a process has ended: {over}"
        finally:
            await self.shop.end()

    async def come(self, name: str, gateway: int = 0) -> Shopper:
        shopper = self.shoppers[name] = Shopper(self.shop, name, gateway)
        await shopper.come()
        return shopper

    async def plain(self) -> None:
        """And a second question, which begins as the first."""
        shopper = await self.come("plain")
        await shopper.ended(await shopper.ask(max_output_tokens=SHORT))
        await asyncio.sleep(10 * STEP_S)
        await shopper.ended(await shopper.ask("second", max_output_tokens=SHORT))

    async def cut(self) -> None:
        """Behind the others: where many wait it is not even begun."""
        await asyncio.sleep(2 * SOFT_MS / 1_000)
        shopper = await self.come("cut")
        await shopper.ended(await shopper.ask(max_output_tokens=60, first_token_ms=HARD_MS, deadline_ms=HARD_MS))

    async def slow(self) -> None:
        shopper = await self.come("slow")
        await shopper.ended(await shopper.ask(max_output_tokens=SHORT, first_token_ms=SOFT_MS))

    async def stopped(self) -> None:
        shopper = await self.come("stopped")
        told = await shopper.ask(max_output_tokens=LONG)
        await shopper.begun(told)
        shopper.say(ResponseCancel(target_event_id="first"))
        await shopper.ended(told)

    async def moved(self) -> None:
        """To the other gateway, in the middle of its answer."""
        shopper = await self.come("moved")
        told = await shopper.ask(max_output_tokens=LONG)
        await shopper.begun(told)
        shopper.lose()
        shopper.gateway = 1
        await shopper.ended(told)

    async def stranded(self) -> None:
        """At the other gateway before there is a word, and there never is one."""
        self.shop.broker.laggards.add(b"demo/stranded")
        shopper = await self.come("stranded")
        told = await shopper.ask(max_output_tokens=SHORT, first_token_ms=SOFT_MS)
        await shopper.until(lambda: told.response_id)
        shopper.lose()
        shopper.gateway = 1
        await shopper.ended(told)

    async def erased(self) -> None:
        shopper = await self.come("erased")
        told = await shopper.ask(max_output_tokens=LONG)
        await shopper.begun(told)
        shopper.say(SessionDelete())
        await shopper.ended(told)
        await shopper.until(lambda: shopper.heard(SessionDeleted) or shopper.heard(ErrorEvent), limit_s=1.0)

    async def person(self) -> None:
        shopper = await self.come("person", gateway=1)
        told = await shopper.ask(question="I want to talk to a human, please.")
        await shopper.ended(told)
        shopper.say(HandoffRequest(event_id="h"))
        await shopper.until(lambda: shopper.heard(HandoffCreated) or shopper.heard(ErrorEvent), limit_s=1.0)
        shopper.say(Feedback(response_id=told.response_id, rating="up"))
        await shopper.until(lambda: shopper.heard(FeedbackRecorded) or shopper.heard(ErrorEvent), limit_s=1.0)

    async def ask_as_services(self) -> None:
        requests: dict[str, dict[str, Any]] = {
            "direct": {"topic": TOPICS.requests("short")},
            "routed": {"topic": TOPICS.inbox},
            "hello": {"topic": TOPICS.requests("short"), "input": "Hello!"},
            "bad": {"topic": TOPICS.requests("short"), "created_unix_ms": SECONDS},
            "bad-routed": {"topic": TOPICS.inbox, "created_unix_ms": SECONDS},
        }
        for name, given in requests.items():
            self.services.append(name)
            request(self.shop, name, **given)
        for name in requests:
            await service_told(self.shop, name)

    async def catch_up(self) -> None:
        """What lags behind is read when all deadlines are past."""
        await asyncio.sleep(3 * SOFT_MS / 1_000)
        self.shop.broker.behind.clear()
        self.shop.broker.wake()

    async def late(self) -> None:
        """Whoever comes after all that is served as ever."""
        for gateway_number in (0, 1):
            shopper = await self.come(f"late-{gateway_number}", gateway_number)
            await shopper.ended(await shopper.ask(max_output_tokens=SHORT))
        self.services.append("late")
        request(self.shop, "late", TOPICS.inbox)
        await service_told(self.shop, "late")
        plain = self.shoppers["plain"]
        await plain.ended(await plain.ask("third", max_output_tokens=SHORT))

    @property
    def outcomes(self) -> dict[str, Outcome]:
        clients = {
            f"{name} {event}": shopper.outcome(event)
            for name, shopper in self.shoppers.items()
            for event in shopper.answers
        }
        return clients | {name: services_outcome(self.shop, name) for name in self.services}


def simulate() -> Day:
    """A day, on a loop whose time is its own."""

    async def run() -> Day:
        loop = asyncio.get_running_loop()
        CLOCKS.set(Clocks(loop.time, lambda: 1e9 + loop.time()))
        day = Day()
        await day.run()
        return day

    return run_at_once(run())
