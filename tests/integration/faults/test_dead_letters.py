"""Poison records in front of good ones become dead letters with a reason; an operator can put them back."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import aiokafka.producer.message_accumulator
import aiokafka.producer.producer
import confluent_kafka
import msgpack
import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.record.default_records import _DefaultRecordBatchBuilderPy

from shared.kafka import GroupReader, PartitionReader, Record, create_topics
from tests.integration.commands.test_cli import replyline
from tests.support.hostile.poison_records import POISON, Poison, packed
from tests.support.reliability import Reliability
from tests.support.shared_system import STANDARD
from tests.support.system import MakeSystem, System, eventually

PART = 200
EVERY = 20
PARTITIONS = 3
TOPICS = ("chat.requests.short", "chat.requests")
CANARY = "my card is 4111-1111"


pytestmark = [STANDARD, pytest.mark.usefixtures("running")]


@dataclass(slots=True)
class Sent:
    """The sent records and their results: poison by its position, the others by their id."""

    others: int
    expected: dict[str, str] = field(default_factory=dict)
    begun: dict[str, float] = field(default_factory=dict)
    delays_s: dict[str, float] = field(default_factory=dict)
    sources: dict[str, str] = field(default_factory=dict)

    def heed(self, record: Any) -> bool:
        """Record an answer; return whether it was the last."""
        event = msgpack.unpackb(record.value)
        if event["type"] == "chat.done" and (name := event["request_id"]) in self.begun:
            self.delays_s[name] = time.monotonic() - self.begun[name]
            self.sources[name] = event["source"] if event["output_text"] else "nobody"
        return len(self.sources) == self.others


def mixed(reliability: Reliability) -> list[Poison | bytes]:
    """Send poison of every kind, with a good or a late record at intervals."""
    kinds = list(POISON.values())
    if not reliability.whole:
        kinds = [kind for kind in kinds if kind.value is None or len(kind.value) < 200_000]
    records: list[Poison | bytes] = []
    for number in range(reliability.amount(1_000, part=PART)):
        records.append(kinds[number % len(kinds)])
        if number % EVERY == 0:
            records.append(packed(id=f"good-{number}", max_output_tokens=3))
        if number % EVERY == 1:
            records.append(packed(id=f"late-{number}", deadline_unix_ms=1))
    return records


@pytest.mark.promise(21)
async def test_good_records_between_poison_records_are_answered(system: System, reliability: Reliability) -> None:
    """In bucket and inbox alike each poison record becomes one dead letter with its reason and nothing else. A record
    with an expired deadline is answered as late, without the model.
    """
    records = mixed(reliability)
    sent = Sent(sum(isinstance(record, bytes) for record in records))
    async with (
        system.reading("chat.dead-letters") as letters,
        system.reading("chat.replies.external") as replies,
        AIOKafkaProducer(bootstrap_servers=system.bootstrap, acks="all") as producer,
    ):
        before = len(await letters.to_the_end())

        async def send(number: int, record: Poison | bytes) -> None:
            topic, partition = system.topic(TOPICS[number % 2]), number % PARTITIONS
            if isinstance(record, bytes):
                sent.begun[msgpack.unpackb(record)["id"]] = time.monotonic()
                await producer.send(topic, record, partition=partition)
                return
            headers = list(record.headers.items())
            done = await producer.send(topic, record.value, key=b"k", partition=partition, headers=headers)
            metadata = await done
            sent.expected[f"{metadata.topic}/{metadata.partition}/{metadata.offset}"] = record.reason

        async def send_all() -> None:
            async with asyncio.TaskGroup() as sending:
                for number, record in enumerate(records):
                    sending.create_task(send(number, record))
                    await asyncio.sleep(0)

        await asyncio.gather(send_all(), replies.until(sent.heed, limit_s=60))
        await letters.until(lambda _: len(letters.records) >= before + len(sent.expected), limit_s=60)
        found = Counter(
            (dict(record.headers)["dead-letter-origin"].decode(), dict(record.headers)["dead-letter-reason"].decode())
            for record in (await letters.to_the_end())[before:]
        )
    assert found == Counter(sent.expected.items())
    good = {name for name in sent.begun if name.startswith("good")}
    assert {sent.sources[name] for name in good} == {"model"}
    assert "model" not in {sent.sources[name] for name in sent.sources.keys() - good}
    longest_s = max(sent.delays_s[name] for name in good)
    reliability.found(
        figure=f"{len(found)} dead letters with their reasons, {len(good)} good records delayed ≤ {longest_s:.1f} s, "
        f"{len(sent.begun) - len(good)} late ones answered without the model",
        target="1,000 → dead letters with a reason; good records delayed ≤ 10 s",
        holds=len(found) >= reliability.amount(1_000, part=PART) and longest_s <= 10,
    )


@pytest.mark.parametrize(("topic", "origin"), [("chat.requests.short", "worker"), ("chat.requests", "gateway")])
async def test_a_refused_client_gets_an_error(
    system: System, unique: Callable[[str], str], topic: str, origin: str
) -> None:
    """Otherwise a service would wait for a terminal event for ever. Its record is committed then."""
    name = unique("refused")
    async with system.reading("chat.replies.external") as replies, system.reading("chat.dead-letters") as letters:
        sent = await system.produce(topic, packed(id=name, input="word " * 20_000), partition=0)
        reply = await replies.until(lambda record: msgpack.unpackb(record.value)["request_id"] == name)
        place = f"{sent.topic}/0/{sent.offset}".encode()
        await letters.until(lambda record: ("dead-letter-origin", place) in record.headers)
    end = msgpack.unpackb(reply.value)
    assert (end["status"], end["reason"], end.get("origin", "worker")) == ("failed", "internal", origin)
    assert end["error"]["code"] == "input_too_long"
    if origin == "worker":

        async def is_committed() -> bool:
            return (await system.committed()).get((topic, 0), 0) > sent.offset

        await eventually(is_committed)


class NoText(str):
    """A header's name as other clients may write it."""

    __slots__ = ()

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"


@pytest.fixture
def any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """aiokafka's fast builder accepts only text as a header's name."""
    for module in (aiokafka.producer.producer, aiokafka.producer.message_accumulator):
        monkeypatch.setattr(module, "DefaultRecordBatchBuilder", _DefaultRecordBatchBuilderPy)


@pytest.mark.usefixtures("any_name")
async def test_undecodable_records_stop_nothing(new_system: MakeSystem) -> None:
    """A header's name that is no text, and batches in a compression that no reader here supports."""
    system = await new_system()  # no other test reads the topic
    await asyncio.gather(system.worker().ready(), system.gateway().ready())
    topic = system.topic("chat.requests.short")
    async with system.reading("chat.dead-letters") as letters, system.reading("chat.replies.external") as replies:
        forged = await system.produce(
            "chat.requests.short", packed(id="forged"), partition=1, headers=[(NoText("x"), b"")]
        )
        for codec in ("lz4", "zstd", "snappy"):
            options = {"bootstrap.servers": system.bootstrap, "compression.type": codec, "linger.ms": 20}
            producer = confluent_kafka.Producer(options)
            for number in range(10):
                producer.produce(topic, packed(id=f"{codec}-{number}", max_output_tokens=1), partition=1)
            assert await asyncio.to_thread(producer.flush, 10) == 0
        origin = f"{topic}/1/{forged.offset}".encode()
        letter = await letters.until(lambda record: ("dead-letter-origin", origin) in record.headers)
        for name in ("lz4-9", "zstd-9", "snappy-9"):
            await replies.until(lambda record: msgpack.unpackb(record.value)["request_id"] == name)  # noqa: B023
    told = dict(letter.headers)
    assert (told["dead-letter-reason"], told["dead-letter-left-out"]) == (b"invalid_record", b"unreadable")


@pytest.mark.usefixtures("any_name")
@pytest.mark.parametrize("in_a_group", [True, False])
async def test_records_next_to_undecodable_ones_are_returned_once_and_in_order(
    system: System, unique: Callable[[str], str], in_a_group: bool
) -> None:
    """Records that aiokafka had drained of other partitions when it failed are read again."""
    settings, topic = system.kafka_settings, system.topic(unique("unreadable"))
    await create_topics(settings, {topic: PARTITIONS})
    reader: GroupReader | PartitionReader = PartitionReader(settings, client_id="test", topic=topic)
    if in_a_group:
        reader = GroupReader(settings, client_id="test", topics=[topic], group=unique("group"))
    else:
        await reader.start()  # it reads from the end on
    sent: list[Any] = []
    async with AIOKafkaProducer(bootstrap_servers=system.bootstrap, acks="all") as producer:
        for batch in range(30):
            headers = [(NoText("x"), b"")] if batch % 7 == 3 else []
            value = b"%d" % batch
            sent += [
                await producer.send(topic, value, partition=number, headers=headers) for number in range(PARTITIONS)
            ]
            await asyncio.gather(*sent)  # a batch a partition
    if isinstance(reader, GroupReader):
        await reader.start(partial(asyncio.sleep, 0))
    records: list[Record] = []
    try:
        async with asyncio.timeout(30):
            while len(records) < len(sent):
                records += await reader.read(timeout_ms=500, max_records=1_000)
    finally:
        await reader.stop()
    for partition in range(PARTITIONS):
        of_it = [record for record in records if record.partition == partition]
        assert [record.offset for record in of_it] == list(range(30))
        assert [bool(record.unreadable) for record in of_it] == [number % 7 == 3 for number in range(30)]
        assert [record.value for record in of_it if not record.unreadable] == [
            b"%d" % number for number in range(30) if number % 7 != 3
        ]


async def test_an_operator_lists_shows_and_puts_back_dead_letters(system: System, unique: Callable[[str], str]) -> None:
    """The customer's text is shown only on request; a record that returns a second time is marked."""
    env, topic = system.environment(), "chat.requests.short"
    healed = packed(id=unique("healed"), input=CANARY, tenant="rival")
    async with system.reading("chat.dead-letters") as letters:
        first = await system.produce(topic, healed, key=b"rival/s1", partition=2)
        second = await system.produce(topic, CANARY.encode(), key=CANARY.encode(), partition=2)
        for metadata in (first, second):
            origin = f"{metadata.topic}/2/{metadata.offset}".encode()
            await letters.until(lambda record: ("dead-letter-origin", origin) in record.headers)  # noqa: B023
        listed = await replyline("dlq", "list", "--json", "--limit", "2", "--since", "1h", **env)
        rows = [json.loads(line) for line in listed.out.splitlines()]
        assert [(row["reason"], row["key"], row["offset"], row["tries"]) for row in rows] == [
            ("tenant_not_allowed", "rival/s1", first.offset, 1),
            ("invalid_record", "<20 bytes>", second.offset, 1),
        ]
        number = rows[0]["number"]
        shown, told, replayed = await asyncio.gather(
            replyline("dlq", "show", number, **env),
            replyline("dlq", "show", number, "--text", **env),
            replyline("dlq", "replay", number, rows[1]["number"], **env),
        )
        assert CANARY not in listed.out + listed.err + shown.out + shown.err
        assert json.loads(shown.out)["value"]["input"] == "<20 characters>"
        assert json.loads(told.out)["value"]["input"] == CANARY
        assert replayed.status == 1
        assert f"{number}: put back to {system.topic(topic)}, partition 2, try 2" in replayed.out
        assert "invalid_record is in the record itself" in replayed.err
        again = await letters.until(lambda record: ("dead-letter-replays", b"1") in record.headers)
    assert (again.value, again.key, dict(again.headers)["dead-letter-reason"]) == (
        healed,
        b"rival/s1",
        b"tenant_not_allowed",
    )
