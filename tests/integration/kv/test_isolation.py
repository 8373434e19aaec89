"""The time to the first token reveals nothing about others' texts: not to another tenant, not to another customer."""

import random
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from statistics import median

import msgpack
import pytest_asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

from tests.support.system import MakeSystem, System

MS_PER_TOKEN = 0.5
CHARS = 300  # one token each: 150 ms, many times the variation of a round trip
HITS = MISSES = 40
CONTROL = 20


@pytest_asyncio.fixture(scope="module")
async def system(make_system: MakeSystem) -> System:
    """Prompts contain only the system text and the question, so that repeating a question repeats its prompt."""
    return await make_system(
        worker__fake_prefill_ms_per_token=MS_PER_TOKEN,
        worker__max_length=1_024,
        worker__history_turns=0,
        worker__grounding_entries=0,
        promise__first_token_ms=20_000,
        promise__deadline_ms=20_000,
    )


@dataclass
class Asker:
    """Another service, which names its tenant in each request."""

    system: System
    producer: AIOKafkaProducer
    consumer: AIOKafkaConsumer
    asked: int = 0

    async def ask(self, tenant: str, session: str, text: str) -> float:
        """Return the milliseconds until the only token arrives."""
        name = await self.send(tenant, session, text)
        begun = time.perf_counter()
        await self.until({name})
        return (time.perf_counter() - begun) * 1_000

    async def send(self, tenant: str, session: str, text: str) -> str:
        self.asked += 1
        name = f"r{self.asked}"
        request = {
            "type": "chat.request",
            "id": name,
            "session_id": session,
            "tenant": tenant,
            "input": text,
            "max_output_tokens": 1,
        }
        await self.producer.send_and_wait(self.system.topic("chat.requests.long"), msgpack.packb(request))
        return name

    async def until(self, names: set[str]) -> None:
        """Wait until the model has answered all of them."""
        while names:
            event = msgpack.unpackb((await self.consumer.getone()).value)
            if event["type"] == "chat.done":
                assert event["source"] == "model"
                names.discard(event["request_id"])


@asynccontextmanager
async def asking(system: System) -> AsyncIterator[Asker]:
    servers = {"bootstrap_servers": system.bootstrap}
    replies = system.topic("chat.replies.external")
    async with (
        AIOKafkaProducer(**servers, acks="all") as producer,
        AIOKafkaConsumer(replies, **servers, auto_offset_reset="earliest", fetch_max_wait_ms=5) as consumer,
    ):
        yield Asker(system, producer, consumer)


def text_of(number: int) -> str:
    """Return a customer's text: all have one length, and no two share their first words."""
    words = random.Random(number)
    return "".join(words.choice("abcdefgh ") for _ in range(CHARS - 1)) + "?"


def auc(hits: Iterable[bool], misses: Iterable[bool]) -> float:
    """Return the chance that a hit looks more like a hit than a miss does; ties count half."""
    pairs = [(hit, miss) for hit in hits for miss in list(misses)]
    return sum((hit > miss) + (hit == miss) / 2 for hit, miss in pairs) / len(pairs)


async def test_the_time_to_the_first_token_reveals_only_a_conversations_own_text(system: System) -> None:
    """80 probes for another tenant, of sessions with the same names: AUC at most 0.55. The same in the very
    conversation: at least 0.9.

    A probe is judged like a calibrated attacker would: by whether it took less than the middle between the control's
    hits and misses. (The rank of times that differ by noise alone would vary by 0.06 at this number.)
    """
    worker = await system.worker().ready()
    order = random.Random(1)
    said = {f"s{number}": text_of(number) for number in range(HITS)}
    async with asking(system) as asker:

        async def probe(tenant: str, number: int, *, hit: bool, session: str | None = None) -> float:
            text = said[f"s{number}"] if hit else text_of(100_000 + number + 1_000 * len(tenant))
            return await asker.ask(tenant, session or f"s{number}", text)

        async def probes(tenant: str, count: int, session: str | None = None) -> dict[bool, list[float]]:
            plan = [(number, hit) for number in range(count) for hit in (True, False)]
            order.shuffle(plan)
            # The shop's texts are this tenant's from its first question on.
            await asker.ask(tenant, "warm-up", text_of(-len(tenant)))
            took: dict[bool, list[float]] = {True: [], False: []}
            for number, hit in plan:
                took[hit].append(await probe(tenant, number, hit=hit, session=session))
            return took

        await asker.until({await asker.send("victim", session, text) for session, text in said.items()})
        own = await probes("victim", CONTROL)
        middle = (median(own[True]) + median(own[False])) / 2
        assert median(own[False]) - median(own[True]) > 0.5 * MS_PER_TOKEN * CHARS

        def seen(took: dict[bool, list[float]]) -> float:
            return auc([ms < middle for ms in took[True]], [ms < middle for ms in took[False]])

        computed = await worker.metric("replyline_worker_tokens_total", kind="prompt")
        stranger = await probes("stranger", HITS)
        computed = await worker.metric("replyline_worker_tokens_total", kind="prompt") - computed
        neighbour = await probes("victim", CONTROL, session="neighbour")
    assert seen(own) >= 0.9
    assert seen(stranger) <= 0.55
    assert seen(neighbour) <= 0.55
    assert computed >= (HITS + MISSES) * CHARS, "each of the texts was computed for the stranger"
