"""Requests of a closed lane, and of a version that is not loaded, go to the champion in their conversation's order;
answers with shown text end where they are.
"""

import asyncio
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from shared.errors import BrokerUnavailable
from shared.kafka import Outgoing, Record
from shared.process.clock import now_unix_ms
from shared.wire.cloud_events import request_headers
from shared.wire.codec import msgpack_encode
from shared.wire.lanes import CHAMPION, LANES, PASSED_ON, Lane
from shared.wire.messages import Cancel, ReplyDelta, ReplyDone
from shared.wire.requests import Order
from shared.wire.topics import TopicNames
from tests.support.builders.worker import DEFAULTS, QUOTED, REVISION, Bench, answer, order, sequence
from tests.support.fakes.instant_loop import at_once
from tests.unit.examples import examples
from workers.intake.passing import HeldRecords, PassingStep, next_step
from workers.intake.passing_on import PassingOn
from workers.intake.reader import Intake
from workers.prompt.conversation import Prompt
from workers.request.job import Job
from workers.request.recent_answers import RecentCancels

TOPICS = TopicNames()
CANARY = TOPICS.requests("short", "canary")
PARTITION = (CANARY, 0)


@dataclass
class LaneBench(Bench):
    """A canary's worker, and all that its intake speaks to, which is this. What its engine publishes is published a
    moment later. A request is prepared as long as its seed says; Kafka fails to take as many records as `refuses`."""

    refuses: int = 0
    lane: Lane = "canary"
    lacks: bool = False
    passed: list[Outgoing] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.serving = self
        self.topics = [self.topic]
        self.cancelled = RecentCancels()
        publish, soon = self.worker.publish, asyncio.get_running_loop().call_soon
        self.worker.publish = lambda progress: soon(publish, progress)  # type: ignore[method-assign]
        self.worker._released = lambda job: self.intake.begin_again(job)  # noqa: PLW0108 - it is made below
        myself: Any = self
        self.intake = Intake(
            letters=myself,
            topics=TOPICS,
            defaults=DEFAULTS,
            offsets=self.offsets,
            cancelled=self.cancelled,
            worker=self.worker,
            answers=self.answers,
            passing=None
            if self.lane == CHAMPION
            else PassingOn(producer=myself, topics=TOPICS, lane=self.lane, offsets=self.offsets, answers=self.answers),
            **dict.fromkeys(("commits", "reader", "versions"), myself),
        )

    @property
    def topic(self) -> str:
        return TOPICS.requests("short", self.lane)

    def for_request(self, *_: object) -> "LaneBench | None":
        """The version of every request is this one, unless it is not loaded."""
        return None if self.lacks else self

    def preparing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def arrive(self, session: str, *, seed: int = 0, **fields: Any) -> str:
        asked = order(
            f"r{len(self.records)}", now=now_unix_ms(), defaults=DEFAULTS, session_id=session, seed=seed, **fields
        )
        times = {"deadline_unix_ms": asked.deadline.deadline_unix_ms, "reply_topic": asked.reply_topic}
        headers = request_headers(structs.replace(asked.request, **times), source="gateway-1")
        key = asked.session.record_key
        self.read(Record(self.topic, 0, len(self.records), key, msgpack_encode(asked.request), headers))
        return asked.request.id

    def read(self, record: Record) -> None:
        self.records.append(record)
        self.intake._sorting.sort([record])
        self.intake._begin_what_fits()

    def cancel(self, request_id: str) -> None:
        cancel = Cancel(request_id=request_id)
        if not self.worker.cancel(cancel):
            self.cancelled.add(cancel, now_unix_ms())

    async def spin(self, times: int = 1, sleep_s: float = 0.002) -> None:
        for _ in range(times):
            await asyncio.sleep(sleep_s)
            self.intake._begin_what_fits()

    async def settle(self) -> None:
        for _ in range(60):
            self.step()
            await self.spin(sleep_s=0.02)
            self.acknowledge()

    @property
    def ids_passed(self) -> list[str]:
        return [record.headers["ce_id"].decode() for record in self.passed]

    # --- the commits, the version that serves, the producer

    async def await_delivery(self, *_: object) -> int:
        return 1

    async def prepare(self, asked: Order, now: float) -> Job:
        await asyncio.sleep(0.001 * asked.seed)
        return Job(
            order=asked,
            bucket="short",
            sequence=sequence(asked.request.id, [5, 6, 7], output=3, deadline=asked.deadline, arrived_unix_ms=now),
            answer=answer(asked.request.id, revision=REVISION),
            prompt=Prompt(ids=[5, 6, 7], shared_tokens=0),
            fallback=QUOTED,
        )

    async def publish(self, record: Outgoing) -> None:
        await asyncio.sleep(0.003)
        if self.refuses:
            self.refuses -= 1
            raise BrokerUnavailable("no leader")
        self.passed.append(record)


STEPS = st.one_of(
    st.tuples(st.just("arrive"), st.sampled_from("ab"), st.integers(0, 4)),
    st.tuples(st.just("step")),
    st.tuples(st.just("spin"), st.integers(1, 4)),
    st.tuples(st.just("cancel"), st.integers(0, 9)),
    st.tuples(st.just("acknowledge")),
)


@settings(max_examples=examples(300))
@given(st.lists(STEPS, max_size=30), st.lists(STEPS, max_size=12), st.integers(0, 2))
def test_nothing_is_lost_shown_answers_stay_and_conversations_keep_their_order(
    before: list[Any], after: list[Any], refuses: int
) -> None:
    @at_once
    async def run() -> None:
        bench = LaneBench(refuses=refuses)
        cancelled = await play(bench, before)
        bench.intake.close_lane(closed=True)
        cancelled_late = await play(bench, after)
        await bench.settle()
        asked = [record.headers["ce_id"].decode() for record in bench.records]
        ended = {reply.request_id for reply in bench.publisher.said if isinstance(reply, ReplyDone)}
        shown = {reply.request_id for reply in bench.publisher.said if isinstance(reply, ReplyDelta)}
        passed = bench.ids_passed
        assert sorted([*passed, *ended]) == sorted(asked), "each is passed on or ends, once"
        assert not shown & {*passed}
        assert not cancelled & {*passed}
        assert ended <= shown | cancelled | cancelled_late, "nothing without text stays"
        for session in "ab":
            names = [record.headers["ce_id"].decode() for record in bench.records if record.key == key(session)]
            assert [name for name in passed if name in names] == [name for name in names if name in passed]
        assert bench.offsets.positions.get(PARTITION, 0) == len(asked), "all may be committed"

    run()


def key(session: str) -> bytes:
    return order(session_id=session).session.record_key


async def play(bench: LaneBench, steps: list[Any]) -> set[str]:
    """Return the ids of the requests that were cancelled."""
    cancelled = set()
    for what, *how in steps:
        match what:
            case "arrive":
                bench.arrive(how[0], seed=how[1])
            case "step":
                bench.step()
            case "spin":
                await bench.spin(how[0])
            case "cancel" if how[0] < len(bench.records):
                bench.cancel(f"r{how[0]}")
                cancelled.add(f"r{how[0]}")
            case "acknowledge":
                bench.acknowledge()
    return cancelled


@at_once
async def test_a_copy_is_the_record_in_the_champions_topic_with_the_time_that_is_left() -> None:
    bench = LaneBench()
    bench.intake.close_lane(closed=True)
    bench.arrive("a", deadline_unix_ms=int(now_unix_ms()) + 9_000)
    await bench.settle()
    [copy], [record] = bench.passed, bench.records
    topic, place = TOPICS.requests("short"), record.partition
    assert copy == Outgoing(topic, record.value, key=record.key, partition=place, headers=record.headers)


@pytest.mark.parametrize("lane", LANES)
@pytest.mark.parametrize("closed", [False, True])
def test_no_lane_answers_for_a_version_that_it_has_not_loaded(lane: Lane, closed: bool) -> None:
    @at_once
    async def run() -> None:
        bench = LaneBench(lane=lane, lacks=not closed)
        bench.intake.close_lane(closed=closed)
        asked = [bench.arrive("a"), bench.arrive("b", seed=3), bench.arrive("a")]
        await bench.settle()
        ended = [end.request_id for end in bench.ends()]
        assert sorted(bench.ids_passed) == (sorted(asked) if lane in PASSED_ON else [])
        assert sorted(ended) == (sorted(asked) if lane == CHAMPION else []), "the champion's is the last lane"
        assert bench.offsets.positions.get((bench.topic, 0), 0) == len(asked), "all may be committed"

    run()


@at_once
async def test_a_request_waits_for_the_one_before_it_and_is_answered_if_its_version_is_loaded_by_then() -> None:
    bench = LaneBench()
    bench.arrive("a", seed=20)
    await bench.spin()
    bench.lacks = True
    bench.arrive("a")
    await bench.spin(3)
    bench.lacks = False
    await bench.settle()
    assert (bench.passed, sorted(end.request_id for end in bench.ends())) == ([], ["r0", "r1"])


@at_once
async def test_a_request_too_late_for_its_first_text_ends_here() -> None:
    bench = LaneBench()
    bench.intake.close_lane(closed=True)
    late = bench.arrive("a", created_unix_ms=int(now_unix_ms()) - 5_000, first_token_unix_ms=int(now_unix_ms()) - 1)
    await bench.settle()
    assert bench.passed == []
    [end] = bench.ends()
    assert (end.request_id, end.status, end.reason) == (late, "incomplete", "deadline")


@at_once
async def test_a_lane_that_is_opened_again_answers_again() -> None:
    bench = LaneBench()
    for closed in (True, False):
        bench.intake.close_lane(closed=closed)
    answered = bench.arrive("a")
    await bench.settle()
    assert (bench.passed, [end.request_id for end in bench.ends()]) == ([], [answered])


@at_once
async def test_a_request_that_comes_twice_while_its_lane_is_closed_for_a_moment_is_answered_once() -> None:
    bench = LaneBench()
    bench.arrive("a", seed=50)
    bench.arrive("a", seed=5)
    bench.read(replace(bench.records[1], offset=2))
    await bench.spin()
    bench.intake.close_lane(closed=True)
    await bench.spin(sleep_s=0.02)  # both wait behind the first
    bench.intake.close_lane(closed=False)
    await bench.settle()
    assert sorted(end.request_id for end in bench.ends()) == ["r0", "r1"]
    assert bench.offsets.positions.get(PARTITION, 0) == len(bench.records), "all may be committed"


def test_only_a_closed_lane_lets_go_and_not_what_nobody_waits_for() -> None:
    here = {"closed": True, "cancelled": False, "late": False, "behind": False}
    assert next_step(**here) is PassingStep.PASS_ON
    assert next_step(**here | {"behind": True}) is PassingStep.WAIT
    for reason in ({"closed": False}, {"cancelled": True}, {"late": True}):
        assert next_step(**here | {"behind": True} | reason) is PassingStep.SERVE


def test_records_that_are_done_are_not_held_for_ever() -> None:
    held = HeldRecords[int]()
    for offset in range(2_000):
        held.add((PARTITION, offset), b"k%d" % (offset % 7), offset, is_open=lambda _, at: at >= 1_990)
    assert len(held) < 1_000
    assert held.get((PARTITION, 1_995)) == 1_995
    assert held.before((PARTITION, 1_997), b"k%d" % (1_997 % 7))[-1] == (PARTITION, 1_990)
