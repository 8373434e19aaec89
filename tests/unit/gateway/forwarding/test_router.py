"""An inbox record is in a bucket or among the dead letters before it is committed, for any fault in it."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pytest
from structlog.testing import capture_logs

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.claim import Claims
from gateway.destination.count import TokenCount
from gateway.destination.gate import AdmissionGate
from gateway.destination.lanes import LaneAdmissions
from gateway.forwarding import forwarding as forwarding_module
from gateway.forwarding.forwarding import Forwarding
from gateway.forwarding.router import Router
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.kafka.producer import partition_of
from shared.model.tokenizer import Tokenizer
from shared.process.clock import now_unix_ms
from shared.records import dead_letters as deadletters
from shared.records import processor
from shared.records.deliveries import Partition
from shared.settings import Settings
from shared.versions.registry import Registry
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.topics import TopicNames
from tests.support.fakes.gateways import LONG, SlowTokenizer, quiet, until
from tests.support.hostile.poison_records import packed
from tests.unit.shared.records.test_commits import FakeReader

TOPICS = TopicNames()


@dataclass
class FakeProducer:
    """Refuses the first records of each topic, this many."""

    refusals: dict[str, list[Exception]] = field(default_factory=dict)
    published: list[Outgoing] = field(default_factory=list)
    partitions: int = 4

    def partition_of(self, topic: str, key: bytes) -> int:
        return partition_of(key, self.partitions)

    def known_partitions(self, topic: str) -> int:
        return self.partitions

    async def publish(self, record: Outgoing) -> None:
        await self.delivered(record.topic, await self.enqueue(record))

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[None]":
        delivery = asyncio.get_running_loop().create_future()
        refusals = self.refusals.get(record.topic, [])
        if refusals:
            delivery.set_exception(refusals.pop(0))
        else:
            self.published.append(record)
            delivery.set_result(None)
        return delivery

    async def delivered(self, topic: str, delivery: "asyncio.Future[None]") -> None:
        await asyncio.sleep(0)
        await delivery

    def of(self, topic: str) -> list[Outgoing]:
        return [record for record in self.published if record.topic == topic]


@dataclass
class Bench:
    reader: FakeReader = field(init=False)
    producer: FakeProducer = field(default_factory=FakeProducer)
    registry: Registry = field(default_factory=Registry)
    admissions: LaneAdmissions = field(default_factory=lambda: LaneAdmissions(AdmissionPolicy()))
    places: Any = None
    router: Router = field(init=False)
    forwarding: Forwarding = field(init=False)

    def __post_init__(self) -> None:
        self.router = Router(
            topics=TOPICS,
            admission_gate=AdmissionGate(self.admissions, registry=self.registry),
            claims=Claims(
                places=self.places,
                producer=self.producer,  # type: ignore[arg-type]
                topics=TOPICS,
            ),
            token_count=TokenCount(Tokenizer.byte_level(), 1_000),
            defaults=Settings().request_defaults,
            source="gateway-0",
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(forwarding_module, "GroupReader", lambda *_, **__: FakeReader())
            self.forwarding = Forwarding(
                Settings(),
                self.producer,  # type: ignore[arg-type]
                "gateway-0",
                name="inbox",
                topics=[TOPICS.inbox],
                group="replyline-router",
                copy=self.router.copy,
            )
        self.reader = cast("FakeReader", self.forwarding.reader)

    async def forward(self, *records: Record) -> None:
        """Read, and worked off; then committed."""
        committing = asyncio.create_task(self.forwarding.commits.run())
        self.forwarding.process(records)
        await self.forwarding.processor.tasks.room(1)
        committing.cancel()
        await self.forwarding.commits.commit()

    @property
    def committed(self) -> dict[Partition, int]:
        return self.reader.offsets


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processor, "_RETRY_S", 0.0)


def record(offset: int, value: bytes | None = None, **headers: bytes) -> Record:
    return Record(TOPICS.inbox, 0, offset, b"k", packed(id=f"r{offset}") if value is None else value, headers)


def ids(records: list[Outgoing]) -> list[str]:
    return [msgspec.msgpack.decode(out.value or b"", type=ChatRequest).id for out in records]


async def test_records_that_the_broker_refused_are_retried_before_the_commit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A dead letter too: else it is in no bucket and in no dead letter, and done."""
    monkeypatch.setattr(deadletters, "_FIRST_PAUSE_S", 0.0)
    bench = Bench()
    away = [BrokerUnavailable("away")]
    bench.producer.refusals = {TOPICS.requests("short"): away * 3, TOPICS.dead_letters: away * 3}
    await bench.forward(record(0), record(1), record(2, b"\xc1"))
    assert sorted(ids(bench.producer.of(TOPICS.requests("short")))) == ["r0", "r1"]
    assert len(bench.producer.of(TOPICS.dead_letters)) == 1
    assert bench.committed == {(TOPICS.inbox, 0): 3}


async def test_a_copy_is_as_old_as_its_records_arrival() -> None:
    bench, now = Bench(), int(now_unix_ms())
    value = packed(id="r0", created_unix_ms=now + 60_000)
    await bench.forward(Record(TOPICS.inbox, 0, 0, b"k", value, arrived_unix_ms=now - 5_000))
    [copy] = bench.producer.of(TOPICS.requests("short"))
    assert msgspec.msgpack.decode(copy.value or b"", type=ChatRequest).created_unix_ms == now - 5_000


async def test_poison_is_set_aside_and_its_neighbours_are_forwarded() -> None:
    bench = Bench()
    unreadable = Record(TOPICS.inbox, 0, 3, None, None, unreadable="no text")
    await bench.forward(record(0, b"\xc1"), record(1), record(2, ce_id=b"other"), unreadable)
    assert ids(bench.producer.of(TOPICS.requests("short"))) == ["r1"]
    told = [letter.headers["dead-letter-reason"] for letter in bench.producer.of(TOPICS.dead_letters)]
    assert sorted(told) == [b"header_mismatch", b"invalid_record", b"invalid_record"]
    assert bench.committed == {(TOPICS.inbox, 0): 4}


async def test_a_record_too_large_for_a_dead_letter_leaves_its_offset_and_size() -> None:
    bench = Bench()
    too_large = ProtocolError("record_too_large", "chat.requests.short takes no record of this size")
    bench.producer.refusals = {TOPICS.requests("short"): [too_large], TOPICS.dead_letters: [too_large]}
    await bench.forward(record(7))
    (letter,) = bench.producer.of(TOPICS.dead_letters)
    told = [letter.headers[f"dead-letter-{what}"] for what in ("origin", "left-out", "reason")]
    assert told == [b"chat.requests/0/7", b"%d bytes" % len(packed(id="r7")), b"record_too_large"]
    assert letter.value == b""


async def test_the_copys_headers_agree_with_its_value() -> None:
    bench = Bench()
    headers = {"reply-topic": b"chat.replies.crm", "reply-partition": b"3", "foreign": b"x"}
    await bench.forward(Record(TOPICS.inbox, 0, 0, b"k", packed(tenant="shop"), headers))
    (copy,) = bench.producer.of(TOPICS.requests("short"))
    value = msgspec.msgpack.decode(copy.value or b"", type=ChatRequest)
    assert (value.reply_topic, value.reply_partition, value.tenant) == ("chat.replies.crm", 3, "shop")
    assert (copy.headers["reply-topic"], copy.headers["reply-partition"]) == (b"chat.replies.crm", b"3")
    assert (copy.headers["ce_id"], copy.headers["foreign"], copy.key) == (b"r1", b"x", b"shop/s1")


async def test_inbox_requests_count_towards_demand() -> None:
    bench = Bench()
    await bench.forward(record(0), record(1, b"poison"))
    asked = bench.admissions.demand.asked()
    assert {lane: {bucket: each.requests for bucket, each in of.items()} for lane, of in asked.items()} == {
        "champion": {"short": 1}
    }


async def test_records_of_one_session_are_forwarded_in_order() -> None:
    """A long input is counted on a thread; a short one behind it is not counted at all."""
    bench, counter = Bench(), SlowTokenizer()
    router = bench.router
    router.token_count.tokenizer = counter  # type: ignore[assignment]
    inputs = [("r0", "s", LONG), ("r1", "s", "short"), ("r2", "t", "short")]
    records = [
        record(offset, packed(id=name, session_id=session, input=text))
        for offset, (name, session, text) in enumerate(inputs)
    ]
    forwarding = asyncio.create_task(bench.forward(*records))
    await until(counter.asked.is_set)
    await quiet()
    assert ids(bench.producer.of(TOPICS.requests("short"))) == ["r2"]
    counter.counted.set()
    await forwarding
    assert [ids([out]) for out in bench.producer.published] == [["r2"], ["r0"], ["r1"]]


async def test_a_record_whose_delivery_fails_is_not_overtaken_by_its_sessions_next_one() -> None:
    bench = Bench()
    bench.producer.refusals = {TOPICS.requests("short"): [BrokerUnavailable("away")] * 3}
    sessions = [("r0", "s"), ("r1", "s"), ("r2", "t"), ("r3", "s")]
    records = [
        record(offset, packed(id=name, session_id=session, input="short"))
        for offset, (name, session) in enumerate(sessions)
    ]
    await bench.forward(*records)
    forwarded = ids(bench.producer.of(TOPICS.requests("short")))
    assert [name for name in forwarded if name != "r2"] == ["r0", "r1", "r3"]
    assert bench.committed == {(TOPICS.inbox, 0): 4}


async def test_a_refused_client_gets_its_end_on_its_reply_topic() -> None:
    """An overlong input, a contradictory record, an invalid request."""
    bench = Bench()
    long = "word " * 2_000
    await bench.forward(record(0, packed(id="r0", input=long)), record(1), record(2, ce_id=b"other"))
    await bench.forward(record(3, packed(id="r3", temperature=9)))
    replies = bench.producer.of(TOPICS.external_replies)
    ends = [msgspec.msgpack.decode(reply.value or b"", type=ReplyDone) for reply in replies]
    assert {(end.status, end.reason, end.origin) for end in ends} == {("failed", "internal", "gateway")}
    codes = {end.request_id: end.error.code for end in ends if end.error is not None}
    assert codes == {"r0": "input_too_long", "r2": "header_mismatch", "r3": "invalid_record"}
    assert bench.committed == {(TOPICS.inbox, 0): 4}


async def test_an_end_that_did_not_get_through_is_published_again() -> None:
    bench = Bench()
    failures: list[Exception] = [BrokerUnavailable("away"), ZeroDivisionError("in the producer")]
    bench.producer.refusals = {TOPICS.external_replies: failures}
    with capture_logs():
        await bench.forward(record(0, packed(id="r0", input="word " * 2_000)))
    assert len(bench.producer.of(TOPICS.external_replies)) == 1
    assert bench.committed == {(TOPICS.inbox, 0): 1}


async def test_a_client_that_names_a_missing_topic_gets_no_end() -> None:
    bench = Bench()
    bench.producer.refusals = {TOPICS.external_replies: [ProtocolError("unknown_topic", "no such topic")]}
    await bench.forward(record(0, packed(id="r0", input="word " * 2_000)))
    assert [len(bench.producer.of(topic)) for topic in (TOPICS.external_replies, TOPICS.dead_letters)] == [0, 1]
    assert bench.committed == {(TOPICS.inbox, 0): 1}


async def test_a_record_read_again_during_its_forwarding_is_forwarded_once() -> None:
    bench = Bench()
    bench.forwarding.process([record(0)])
    await bench.forward(record(0), record(1))
    assert ids(bench.producer.of(TOPICS.requests("short"))) == ["r0", "r1"]
