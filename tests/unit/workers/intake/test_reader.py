"""What is too late takes no room; what is served is begun bucket by bucket; what fits nowhere rests."""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest
from prometheus_client import REGISTRY

from shared.conversation.session_key import SessionKey
from shared.kafka import Record
from shared.process.clock import now_unix_ms
from shared.records.dead_letters import DeadLetters
from shared.records.deliveries import Partition
from shared.records.offsets import OffsetTracker
from shared.records.requests import Defaults, Order
from shared.settings import Settings
from shared.wire.messages import Erase, ReplyDone
from shared.wire.topics import BUCKETS, TopicNames
from tests.support.builders.worker import order
from workers.intake.reader import Intake
from workers.request.recent_cancels import RecentCancels
from workers.request.reply_publisher import Target

TOPICS = TopicNames()
SHORT, LONG = TOPICS.requests("short"), TOPICS.requests("long")


@dataclass
class FakeReader:
    topics: list[str] = field(default_factory=lambda: [TOPICS.requests(bucket) for bucket in BUCKETS])
    revoked: list[Partition] = field(default_factory=list)
    lost: list[Partition] = field(default_factory=list)
    at_rest: Collection[str] = ()

    def rest(self, topics: Collection[str]) -> None:
        self.at_rest = topics

    def take_revoked(self) -> list[Partition]:
        return self.revoked

    def take_lost(self) -> list[Partition]:
        return self.lost


@dataclass
class FakeWorker:
    """`looks` is how often it says that an earlier answer is leaving still; `known` are records that became jobs."""

    max_waiting: int = 8
    answered: list[tuple[Target, ReplyDone, tuple[Partition, int]]] = field(default_factory=list)
    known: Collection[tuple[Partition, int]] = ()
    looks: float = 0
    erased: list[tuple[SessionKey, int]] = field(default_factory=list)

    def erase(self, session: SessionKey, generation: int) -> None:
        self.erased.append((session, generation))

    def leaving(self, _request_id: str, _origin: tuple[Partition, int]) -> bool:
        self.looks -= 1
        return self.looks >= 0

    def repeated(self, _order: Order, _origin: tuple[Partition, int]) -> bool:
        """Joined, where it is still there."""
        return self.looks >= 0

    def answer_unread(self, target: Target, done: ReplyDone, origin: tuple[Partition, int]) -> bool:
        if origin in self.known:
            return False
        self.answered.append((target, done, origin))
        return True


class FakePrompts:
    """What was encoded of each conversation."""

    def __init__(self) -> None:
        self.forgotten: list[SessionKey] = []
        self.encoded_turns = self

    def forget(self, session: SessionKey) -> None:
        self.forgotten.append(session)


@dataclass
class FakePreparer:
    prompts: FakePrompts = field(default_factory=FakePrompts)


@dataclass
class FakeCommits:
    """Every delivery is noted at once, as the one of this `number`; None: its partition has gone."""

    number: int | None = 1

    async def begin(self, *_: object) -> int | None:
        return self.number


class AbsentProducer:
    """Its broker does not answer."""

    async def publish(self, _: object) -> None:
        await asyncio.Event().wait()


@dataclass
class Bench:
    reader: FakeReader = field(default_factory=FakeReader)
    worker: FakeWorker = field(default_factory=FakeWorker)
    preparer: FakePreparer = field(default_factory=FakePreparer)
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    producer: Any = field(default_factory=AbsentProducer)
    intake: Intake = field(init=False)

    def __post_init__(self) -> None:
        self.intake = Intake(
            reader=self.reader,  # type: ignore[arg-type]
            letters=DeadLetters(self.producer, TOPICS),
            topics=TOPICS,
            preparer=self.preparer,  # type: ignore[arg-type]
            defaults=Defaults.of(Settings()),
            offsets=self.offsets,
            commits=FakeCommits(),  # type: ignore[arg-type]
            worker=self.worker,  # type: ignore[arg-type]
            cancelled=RecentCancels(),
        )

    @property
    def parked(self) -> int:
        return self.intake._lookahead.num_parked


def record(offset: int, *, topic: str = SHORT, late_ms: int | None = None, replies: str = "chat.replies") -> Record:
    """One to be served where it is not late."""
    headers = {"ce_id": f"r{offset}".encode(), "reply-topic": replies.encode()}
    if late_ms is not None:
        headers["deadline-unix-ms"] = str(int(now_unix_ms()) - late_ms).encode()
    return Record(topic, 0, offset, b"demo/s", b"\xc1 never opened", headers)


def test_what_is_passed_over_is_not_committed_before_what_is_owed_an_answer() -> None:
    bench = Bench()
    late = {"late_ms": 5_000}
    bench.intake._sort([record(0, **late), record(1), record(2, **late), record(3, replies="chat.replies.crm", **late)])
    assert bench.offsets.committable() == {(SHORT, 0): 1}
    [(target, done, origin)] = bench.worker.answered
    assert (target, done.request_id, origin) == (("chat.replies.crm", None), "r3", ((SHORT, 0), 3))
    bench.offsets.done((SHORT, 0), 1)
    assert bench.offsets.committable() == {(SHORT, 0): 3}
    bench.offsets.done(*origin)
    assert bench.offsets.committable() == {(SHORT, 0): 4}


def counted(name: str, **labels: str) -> float:
    return REGISTRY.get_sample_value(name, labels) or 0.0


def test_an_answer_without_being_opened_is_counted_once_and_the_promise_as_missed() -> None:
    def counts() -> list[float]:
        return [
            counted("infer_total", status="incomplete", reason="deadline"),
            counted("replyline_worker_outcomes_total", outcome="missed"),
        ]

    bench = Bench(worker=FakeWorker(known=[((SHORT, 0), 2)]))
    before = counts()
    bench.intake._sort([record(0), *(record(at, replies="chat.replies.crm", late_ms=10) for at in (1, 2))])
    assert [origin for _, _, origin in bench.worker.answered] == [((SHORT, 0), 1)]
    assert counts() == [each + 1 for each in before], "the third has an answer of its own"


def test_a_clock_that_is_ahead_is_counted_each_time_and_told_once_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    """By more than a second; a record that has waited says nothing of clocks. A clock set back tells anew."""
    bench, now, before = Bench(), 1_800_000_000_000, counted("replyline_worker_odd_requests_total", what="clock")
    ahead = [(0, 1_000), (0, -60_000), (0, 2_000), (1_000, 300_000), (59_999, 2_000), (60_000, 2_000), (-1_000, 2_000)]
    told = []
    for later_ms, by_ms in ahead:
        bench.intake._check_clock(record(0), now + later_ms + by_ms, now + later_ms)
        told.append("clock_skew" in capsys.readouterr().out)
    assert told == [False, False, True, False, False, True, True]
    assert counted("replyline_worker_odd_requests_total", what="clock") == before + 5


def test_only_the_flooded_topic_rests() -> None:
    bench = Bench()
    bench.intake._sort([*(record(offset) for offset in range(8)), record(0, topic=LONG)])
    bench.intake._rest()
    assert bench.reader.at_rest == {SHORT}


def test_what_a_rebalance_took_is_no_longer_parked_nor_committable() -> None:
    bench = Bench()
    bench.intake._sort([record(0, late_ms=5_000), record(1), record(0, topic=LONG)])
    bench.reader.revoked = [(SHORT, 0), (LONG, 0)]
    bench.reader.lost = [(SHORT, 0)]
    bench.intake._forget_revoked()
    assert (bench.parked, bench.offsets.committable()) == (0, {})
    assert bench.offsets.num_open == 1, "the one that was given back keeps its place"


def test_what_is_done_behind_a_slow_one_is_not_served_again_after_a_rebalance() -> None:
    bench = Bench()
    bench.intake._sort([record(offset) for offset in range(3)])
    bench.offsets.done((SHORT, 0), 1)
    bench.reader.revoked = [(SHORT, 0)]
    bench.intake._forget_revoked()
    bench.intake._sort([record(offset) for offset in range(4)])
    assert bench.parked == 3, "0 and 2 were dropped unserved, 3 is new"
    assert bench.offsets.num_open == 3


def test_what_was_dropped_unserved_and_is_late_when_it_is_read_again_holds_up_no_commit() -> None:
    bench = Bench()
    bench.intake._sort([record(0)])
    bench.reader.revoked = [(SHORT, 0)]
    bench.intake._forget_revoked()
    bench.intake._sort([record(0, late_ms=5_000)])
    assert bench.offsets.committable() == {(SHORT, 0): 1}


async def test_what_is_read_again_while_it_is_served_is_let_alone() -> None:
    """Also where its deadline has passed meanwhile: its own end is to come."""
    bench = Bench()
    crm = "chat.replies.crm"
    bench.intake._sort([record(0, replies=crm), record(1, replies=crm)])
    bench.intake._begin_what_fits()
    bench.reader.revoked = [(SHORT, 0)]
    bench.intake._forget_revoked()
    bench.intake._sort([record(0, replies=crm), record(1, replies=crm, late_ms=10)])
    assert (bench.parked, bench.worker.answered, bench.offsets.num_open) == (0, [], 2)
    await bench.intake.finish(0)


async def test_a_record_that_cannot_be_put_aside_holds_up_no_shutdown() -> None:
    """Without a broker; it is not committed, and read again."""
    bench = Bench()
    bench.intake._sort([record(0)])
    bench.intake._begin_what_fits()
    async with asyncio.timeout(5):
        await bench.intake.finish(0.01)
    assert (len(bench.intake._preparing), bench.offsets.num_open) == (0, 1)


def test_of_an_erased_conversation_nothing_stays_with_the_worker_nor_in_what_was_encoded() -> None:
    bench = Bench()
    bench.intake.erase(Erase(tenant="demo", session_id="s", generation=7))
    assert bench.worker.erased == [(SessionKey("demo", "s"), 7)]
    assert bench.preparer.prompts.forgotten == [SessionKey("demo", "s")]


async def test_an_answer_that_has_nothing_for_who_asks_again_is_let_out_first() -> None:
    bench = Bench(worker=FakeWorker(looks=3))
    assert not await bench.intake._repeated(order(now=now_unix_ms()), ((SHORT, 0), 1))
    assert bench.worker.looks == -1


async def test_an_answer_that_does_not_leave_is_waited_for_until_the_deadline() -> None:
    """Kafka is away, and acknowledges no end."""
    bench = Bench(worker=FakeWorker(looks=float("inf")))
    async with asyncio.timeout(5):
        assert await bench.intake._repeated(
            order(now=(now := now_unix_ms()), first_token_unix_ms=int(now) + 30), ((SHORT, 0), 1)
        )
