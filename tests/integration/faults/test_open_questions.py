"""Workers are killed while each conversation has several questions open; prompts have history, entries and a system
text, as shipped. The next worker continues with the same text: no answer fails or restarts.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest
import pytest_asyncio

from tests.support.reliability import Reliability
from tests.support.switches import SHIPPED
from tests.support.system import CURSOR_SECRET, MakeSystem, Service, System, eventually
from tests.support.wire import Answer, Client

_CONVERSATIONS = 16
_WORKERS = 3
# The FAQ has entries for them, so that the model is asked.
_QUESTIONS = ("How long does delivery take?", "How do I return an item?", "Do you ship abroad?", "怎么退货？")
_SETTINGS = {
    **SHIPPED,
    "worker__slots": 16,
    "worker__fake_decode_ms_per_step": 15,
    "kafka__request_partitions": 12,
    "gateway__cursor_secret_file": CURSOR_SECRET,
    "gateway__messages_per_minute": 100_000,
    "gateway__max_inflight_per_connection": 8,
    "promise__first_token_ms": 20_000,
    "promise__deadline_ms": 30_000,
}


class Fleet:
    """Two gateways, and workers that are killed and replaced one after another."""

    def __init__(self, system: System) -> None:
        self.system = system
        self.gateways = [system.gateway(gateway__reply_partition=number) for number in range(2)]
        self.workers = [system.worker() for _ in range(_WORKERS)]

    async def ready(self) -> "Fleet":
        await asyncio.gather(*(service.ready() for service in [*self.gateways, *self.workers]))
        await eventually(self._all_are_known)
        return self

    async def _all_are_known(self) -> bool:
        return all([await each.metric("replyline_gateway_workers") == _WORKERS for each in self.gateways])

    async def replace_one(self) -> None:
        self.workers.pop(0).kill()
        self.workers.append(await self.system.worker().ready())

    @property
    def doors(self) -> list[Service]:
        return self.gateways


@pytest_asyncio.fixture
async def fleet(new_system: MakeSystem) -> AsyncIterator[Fleet]:
    yield await Fleet(await new_system(**_SETTINGS)).ready()


class Tabs:
    """One customer: two tabs, at two gateways, in one conversation; impatient, so a second question follows the first
    immediately.
    """

    def __init__(self, one: Client, two: Client, seed: int) -> None:
        self.tabs, self.chance = (one, two), random.Random(seed)

    async def ask(self, tab: Client, num_tokens: int) -> tuple[Client, str]:
        return tab, await tab.create(self.chance.choice(_QUESTIONS), max_output_tokens=num_tokens)

    async def round(self) -> list[tuple[Client, str]]:
        """Ask three overlapping questions: some have ended when the worker is killed, and later ones are open."""
        asked = []
        for tab, longest in zip((*self.tabs, self.chance.choice(self.tabs)), (60, 250, 250), strict=True):
            asked.append(await self.ask(tab, self.chance.randint(longest // 2, longest)))
            await asyncio.sleep(self.chance.random() * 0.5)
        return asked


def is_open(client: Client, event_id: str) -> bool:
    """Return whether the answer has begun, and has not ended."""
    names = {e["response_id"] for e in client.events if e["type"] == "response.created" and e["event_id"] == event_id}
    begun = any(e["type"].endswith(".delta") and e["response_id"] in names for e in client.events)
    return begun and not any(e["type"] == "response.done" and e["response"]["id"] in names for e in client.events)


@pytest.mark.timeout(1_200)
@pytest.mark.promise(29)
async def test_no_answer_open_at_a_kill_fails_or_restarts(fleet: Fleet, reliability: Reliability) -> None:
    num_open, wrong = 0, list[str]()
    async with AsyncExitStack() as stack:

        async def tabs(number: int) -> Tabs:
            session_id = f"tabs-{number}"
            one, two = [
                await stack.enter_async_context(Client.connect(door.ws, session_id=session_id)) for door in fleet.doors
            ]
            return Tabs(one, two, number)

        customers = [await tabs(number) for number in range(_CONVERSATIONS)]
        for _ in range(reliability.amount(22, part=3)):
            rounds = await asyncio.gather(*(each.round() for each in customers))
            asked = [each for questions in rounds for each in questions]
            num_open += sum(is_open(client, event_id) for client, event_id in asked)
            killing = asyncio.create_task(fleet.replace_one())
            ended = await asyncio.gather(*(each.answer(name) for each, name in asked), return_exceptions=True)
            await killing
            wrong += [told for each in ended if (told := _wrong(each))]
    assert not wrong, f"{len(wrong)} of {num_open} open at a kill: {wrong[:5]}"
    reliability.found(
        figure=f"{num_open} answers open at a kill, 0 failed or begun again", target="0", holds=num_open > 0
    )


def _wrong(answer: Answer | BaseException) -> str:
    """Return what is wrong with an answer; empty if it is right. `check` tests separately that no answer begins
    twice."""
    if isinstance(answer, BaseException):
        return repr(answer)[:300]
    return "" if answer.outcome == ("incomplete", "max_output_tokens", "model") else str(answer.response)[:300]
