"""Conversations move to workers with free time: cancels follow a moved question, and a conversation's order is kept."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import count, pairwise
from typing import Any, Final

import msgpack
import pytest_asyncio
from aiokafka import ConsumerRecord

from shared.kafka.producer import partition_of
from shared.wire.session_key import SessionKey
from tests.integration.answers.test_cancels import PARTITIONS, REMEMBERED, share_out
from tests.support.system import CURSOR_SECRET, MakeSystem, Service, System, eventually
from tests.support.wire import Client

QUESTION: Final = "How do I return an item?"
LONG: Final = 1_000  # tokens: 20 s
SLOTS: Final = 2
WHOLE: Final = ("incomplete", "max_output_tokens", "model")


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    return await new_system(
        gateway__cursor_secret_file=CURSOR_SECRET,
        worker__slots=SLOTS,
        worker__fake_decode_ms_per_step=20,
        promise__deadline_ms=40_000,
        promise__first_token_ms=30_000,
        limits__max_input_tokens=900,
    )


@pytest_asyncio.fixture
async def workers(system: System) -> list[Service]:
    both = [system.worker() for _ in range(2)]
    await asyncio.gather(*(worker.ready() for worker in both))
    await share_out(system, *both)
    return both


def homes(unique: Callable[[str], str], wanted: int) -> str:
    """Return a session whose key hashes to that partition."""
    names = (unique(f"session{number}") for number in count())
    return next(name for name in names if home_of(name) == wanted)


def home_of(session_id: str) -> int:
    return partition_of(SessionKey("demo", session_id).record_key, PARTITIONS)


@asynccontextmanager
async def hot(system: System, partition: int, unique: Callable[[str], str]) -> AsyncIterator[None]:
    """Ask more of a partition than its worker has slots, through a gateway that routes by hash."""
    hashing = await system.gateway(gateway__reply_partition=5, gateway__placement="hash").ready()
    async with AsyncExitStack() as clients:
        for _ in range(3 * SLOTS):
            session_id = homes(unique, partition)
            client = await clients.enter_async_context(Client.connect(hashing.ws, session_id=session_id))
            await client.create(QUESTION, max_output_tokens=LONG)
        yield
    hashing.kill()


async def placed(system: System, *session_ids: str) -> dict[str, list[tuple[int, int, str]]]:
    """Return the time, place and id of each of these sessions' questions, by session."""
    found: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    async with system.reading("chat.requests.short") as tap:
        for record in await tap.to_the_end():
            request = msgpack.unpackb(record.value)
            if request["session_id"] in session_ids:
                found[request["session_id"]].append((record.timestamp, record.partition, request["id"]))
    return {name: sorted(each) for name, each in found.items()}


async def moves(gateway: Service) -> float:
    return sum([await gateway.metric("replyline_gateway_placed_total", why=why) for why in ("slack", "moved")])


async def knows_that_it_is_hot(gateway: Service) -> None:
    async def is_skewed() -> bool:
        return await gateway.metric("replyline_gateway_partition_skew") > 2

    await eventually(is_skewed)


async def test_a_cancel_of_a_placed_question_reaches_its_worker_from_either_gateway(
    system: System, workers: list[Service], unique: Callable[[str], str]
) -> None:
    """It is asked at one gateway, resumed and cancelled at another; a second question follows during that time. A
    gateway without Redis routes by hash.
    """
    without = system.gateway(gateway__reply_partition=2, redis__url="redis://127.0.0.1:1/0")
    one, two = await asyncio.gather(*(system.gateway(gateway__reply_partition=n).ready() for n in range(2)))
    async with hot(system, 0, unique):
        for gateway in (one, two, without):
            await knows_that_it_is_hot(gateway)
        session_id, other = homes(unique, 0), homes(unique, 0)
        async with Client.connect(one.ws, session_id=session_id) as client:
            first = await client.create(QUESTION, max_output_tokens=LONG)
            await client.text_of(first, chars=5)
            cursor = [event["cursor"] for event in client.events if event.get("cursor")][-1]
        async with Client.connect(two.ws, session_id=session_id, cursor=cursor) as back:
            second = await back.create(QUESTION, max_output_tokens=5)
            assert (await back.answer(second)).outcome == WHOLE
            assert back.events[0]["recovered"]
            await back.send({"type": "response.cancel", "target_event_id": first})
            await back.until(lambda event: event.get("response", {}).get("status") == "cancelled")
        ended = [lambda each=each: each.logged("answered", status="cancelled") for each in workers]
        await eventually(lambda: sum(len(each()) for each in ended) == 1)
        async with Client.connect(without.ws, session_id=other) as client:
            await client.created(await client.create(QUESTION, max_output_tokens=1))
        found = await placed(system, session_id, other)
        assert await one.metric("replyline_gateway_placed_total", why="slack") == 1
        assert await two.metric("replyline_gateway_placed_total", why="pinned") == 1
    assert [partition for _, partition, _ in found[other]] == [0]
    (at,) = {partition for _, partition, _ in found[session_id]}
    assert at != 0
    await asyncio.sleep(1)  # a worker that reads foreign cancels has read it by this time
    assert [await worker.metric(REMEMBERED) for worker in workers] == [0, 0]


async def test_conversations_that_move_keep_their_order_through_two_gateways(
    system: System, workers: list[Service]
) -> None:
    """Each has a client at either gateway; both ask at any time, often while the other's question is open."""
    gateways = await asyncio.gather(*(system.gateway(gateway__reply_partition=n).ready() for n in range(2)))
    chance, names = random.Random(35), [f"moves-{number}" for number in range(10)]

    async def chat(name: str) -> None:
        async with AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(Client.connect(each.ws, session_id=name)) for each in gateways]
            for _ in range(6):
                asking = [each for each in clients if chance.random() < 0.6] or [clients[0]]
                events = [await each.create(QUESTION, max_output_tokens=chance.choice((5, 40))) for each in asking]
                for each, event in zip(asking, events, strict=True):
                    assert (await each.answer(event)).outcome == WHOLE
                await asyncio.sleep(chance.choice((0, 0.2, 1.5)))

    await asyncio.gather(*map(chat, names))
    assert sum([await moves(gateway) for gateway in gateways]) > 0
    async with system.reading("chat.replies") as tap:
        ends = dict(map(_end, [record for record in await tap.to_the_end() if b"chat.done" in record.value]))
    for asked in (await placed(system, *names)).values():
        for (_, before, earlier), (at, partition, _) in pairwise(asked):
            assert partition == before or ends[earlier] <= at


def _end(record: "ConsumerRecord[Any, Any]") -> tuple[str, int]:
    return msgpack.unpackb(record.value)["request_id"], record.timestamp
