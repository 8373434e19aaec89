"""Topics get more partitions during conversations: no record is lost, and no turn of a conversation
overtakes another.
"""

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

import msgspec
import pytest_asyncio
from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions

from ops.operate.topics import grow
from tests.support.system import MakeSystem, Service, System, eventually
from tests.support.tap import Tap
from tests.support.wire import Answer, Client

PARTITIONS: Final = 8
TIMES: Final = 6


@pytest_asyncio.fixture
async def system(new_system: MakeSystem) -> System:
    """A system whose topics each test creates."""
    return await new_system(worker__slots=TIMES, worker__fake_decode_ms_per_step=20, promise__deadline_ms=30_000)


async def given_more_partitions(system: System, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=system.bootstrap)
    await admin.start()
    try:
        await admin.create_partitions({system.topic(topic): NewPartitions(PARTITIONS)})
    finally:
        await admin.close()


async def test_erasures_reach_gateways_that_started_before_the_partitions(system: System) -> None:
    """The second gateway starts later and knows all of them; the first knows the partitions of its start."""
    before, _ = await asyncio.gather(system.gateway(gateway__reply_partition=0).ready(), system.worker().ready())
    await given_more_partitions(system, "chat.erasures")
    later = await system.gateway(gateway__reply_partition=1).ready()
    async with Client.connect(before.ws) as client, Client.connect(later.ws, session_id=client.session_id) as eraser:
        for _ in range(TIMES):
            running = await client.create("How do I return an item?", max_output_tokens=1_000)
            await client.text_of(running, chars=5)
            await eraser.send({"type": "session.delete"})
            assert (await client.answer(running)).outcome[0] == "cancelled"
    async with system.reading("chat.erasures") as tap:
        records = await tap.to_the_end()
    assert {record.partition for record in records} == {0}
    assert len(records) == TIMES


async def test_a_workers_reports_reach_a_gateway_that_started_before_the_partitions(system: System) -> None:
    gateway = await system.gateway().ready()
    await given_more_partitions(system, "chat.workers")
    await system.worker().ready()
    await knows_one_worker(gateway)


async def knows_one_worker(gateway: Service) -> None:
    async def is_known() -> bool:
        return await gateway.metric("replyline_gateway_workers") == 1

    await eventually(is_known)


CONVERSATIONS: Final = 12
OPEN: Final = 3
TURNS: Final = 8


@dataclass
class Conversation:
    """Asks turn after turn at alternating gateways, a few before the first of them is answered; pauses now and then,
    when all are.
    """

    clients: tuple[Client, Client]
    asked: list[str] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)

    async def run(self, until: asyncio.Event) -> None:
        while not until.is_set():
            client = self.clients[len(self.asked) % 2]
            self.asked.append(await client.create(f"Question {len(self.asked)}", max_output_tokens=20))
            await client.created(self.asked[-1])
            rests = len(self.asked) % TURNS == 0
            await self._await_answers(len(self.asked) - (0 if rests else OPEN))
            await asyncio.sleep(1.2 if rests else 0)
        await self._await_answers(len(self.asked))

    async def _await_answers(self, number: int) -> None:
        while len(self.answers) < number:
            turn = len(self.answers)
            self.answers.append(await self.clients[turn % 2].answer(self.asked[turn]))


async def test_no_turn_overtakes_another_while_the_request_topics_grow(new_system: MakeSystem) -> None:
    """Two gateways, and more turns at a time than slots: some always wait."""
    system = await new_system(
        admission__enabled=False, worker__slots=4, worker__fake_decode_ms_per_step=10,
        gateway__messages_per_minute=100_000, promise__first_token_ms=60_000, promise__deadline_ms=60_000,
    )  # fmt: skip
    gateways = [system.gateway(gateway__reply_partition=number) for number in range(2)]
    await asyncio.gather(*(each.ready() for each in (*gateways, system.worker(), system.worker())))
    enough = asyncio.Event()
    async with AsyncExitStack() as stack:
        talks = [await begun(stack, gateways, f"early-{number}") for number in range(CONVERSATIONS)]
        running = [asyncio.create_task(talk.run(enough)) for talk in talks]
        await eventually(lambda: all(len(talk.answers) > OPEN for talk in talks))
        await grow(system.kafka_settings, 6)
        async with system.reading("chat.requests.short") as tap:
            while not await are_used(tap):  # an old conversation stays while it is served there as soon as elsewhere
                talks.append(await begun(stack, gateways, f"late-{len(talks)}"))
                running.append(asyncio.create_task(talks[-1].run(enough)))
                await asyncio.sleep(0.5)
        then = [len(talk.answers) for talk in talks]
        await eventually(lambda: all(len(talk.answers) > n + TURNS for talk, n in zip(talks, then, strict=True)))
        enough.set()
        await asyncio.gather(*running)
        for talk in talks:
            assert {answer.outcome for answer in talk.answers} == {("incomplete", "max_output_tokens", "model")}
            assert sum(client.count("response.done") for client in talk.clients) == len(talk.asked)
            assert sum(client.count("error") for client in talk.clients) == 0
    await stood_in_order(system, talks)


async def begun(stack: AsyncExitStack, gateways: list[Service], session_id: str) -> Conversation:
    one, other = [await stack.enter_async_context(Client.connect(each.ws, session_id=session_id)) for each in gateways]
    return Conversation((one, other))


async def are_used(tap: Tap) -> bool:
    """Return whether the new partitions contain records."""
    new = [TopicPartition(topic, number) for topic in tap.consumer.subscription() for number in range(3, 6)]
    return any((await tap.consumer.end_offsets(new)).values())


async def stood_in_order(system: System, talks: list[Conversation]) -> None:
    """Check that each turn is after the previous one, so it is begun later; in another partition only after that one
    was answered. Of turns answered in parallel any may end first.
    """
    async with system.reading("chat.requests.short") as asked, system.reading("chat.replies") as told:
        records = {dict(each.headers)["ce_id"].decode(): each for each in await asked.to_the_end()}
        replies = [(each.timestamp, msgspec.msgpack.decode(each.value)) for each in await told.to_the_end()]
    answered: dict[str, int] = {}
    for at, reply in sorted(replies, key=lambda each: each[0]):
        if reply["type"] == "chat.done":  # of two workers' answers the first counts
            answered.setdefault(reply["request_id"], at)
    for talk in talks:
        ids = [answer.response["id"] for answer in talk.answers]
        for before, after in pairwise(ids):
            one, other = records[before], records[after]
            moved = one.partition != other.partition
            assert answered[before] < other.timestamp if moved else one.offset < other.offset
