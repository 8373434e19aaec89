"""Replies leave in order, grow while a round is in flight, and a terminal event is sent until it is acknowledged."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest
import pytest_asyncio
from aiokafka.errors import MessageSizeTooLargeError, TopicAuthorizationFailedError
from prometheus_client import REGISTRY
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable, ProtocolError, ReplylineError
from shared.kafka import Outgoing, Producer
from shared.settings.kafka import KafkaSettings
from shared.wire.codec import decode_reply, msgpack_encode
from shared.wire.messages import Reply, ReplyDelta, ReplyDone
from shared.wire.requests import Target
from tests.support.builders.wire import delta, done
from workers.request import reply_publisher
from workers.request.reply_publisher import ReplyPublisher

HOME: Target = ("chat.replies", 3)
ELSEWHERE: Target = ("chat.replies.crm", None)


@dataclass
class FakeProducer:
    """Takes records as `shared.kafka.Producer` does; while `held` it acknowledges none."""

    taken: list[Outgoing] = field(default_factory=list)
    held: bool = False
    fails: Callable[[Reply], Exception | None] = lambda _: None
    refuses: Callable[[Outgoing], Exception | None] = lambda _: None
    _open: list[tuple[asyncio.Future[object], Reply]] = field(default_factory=list)

    async def enqueue(self, record: Outgoing) -> asyncio.Future[object]:
        if (refusal := self.refuses(record)) is not None:
            raise refusal
        self.taken.append(record)
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self._open.append((future, decode_reply(record.value)))
        if not self.held:
            self.acknowledge()
        return future

    def verdict(self, topic: str, error: BaseException) -> ReplylineError:
        return Producer(KafkaSettings(), client_id="test").verdict(topic, error)

    def acknowledge(self) -> None:
        """Answer for all that is open, as `fails` says."""
        for future, reply in self._open:
            if (failure := self.fails(reply)) is not None:
                future.set_exception(failure)
            else:
                future.set_result(None)
        self._open.clear()

    def take(self) -> list[Reply]:
        """What was produced since the last time."""
        taken, self.taken = self.taken, []
        return [decode_reply(record.value) for record in taken]


@dataclass
class Desk:
    producer: FakeProducer
    publisher: ReplyPublisher
    settled: list[str] = field(default_factory=list)

    def end(self, target: Target, done: ReplyDone) -> None:
        self.publisher.done(target, done, lambda: self.settled.append(done.request_id))


async def quiet() -> None:
    """Let every task run until it waits."""
    for _ in range(30):
        await asyncio.sleep(0)


def make_desk() -> Desk:
    producer = FakeProducer()
    return Desk(producer, ReplyPublisher(producer, gateways="chat.replies", source="worker-1"))  # type: ignore[arg-type]


@pytest_asyncio.fixture
async def desk(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Desk]:
    """Rounds follow each other without a pause, also after a failed one."""
    monkeypatch.setattr(reply_publisher, "_RETRY_S", 0)
    desk = make_desk()
    yield desk
    await desk.publisher.stop()


async def test_records_go_to_the_target_with_the_sessions_key(desk: Desk) -> None:
    desk.end(HOME, done("x"))
    desk.end(ELSEWHERE, done("y", "q"))
    await desk.publisher.flush()
    assert {(record.topic, record.partition, record.key) for record in desk.producer.taken} == {
        ("chat.replies", 3, b"s"),
        ("chat.replies.crm", None, b"s"),
    }
    events = {record.topic: record.headers.get("ce_id") for record in desk.producer.taken}
    assert events == {"chat.replies": None, "chat.replies.crm": b"q/1/done"}


async def test_what_is_written_while_a_round_is_in_flight_leaves_as_one_delta(desk: Desk) -> None:
    desk.producer.held = True
    desk.publisher.delta(HOME, delta("a", 0))
    await quiet()
    for offset, text in enumerate(["b", "c", "d"], start=1):
        desk.publisher.delta(HOME, delta(text, offset, offset))
        await quiet()
    desk.publisher.delta(HOME, delta("x", 0, request_id="q"))
    desk.end(HOME, done("abcd"))
    await quiet()
    assert desk.producer.take() == [delta("a", 0)]
    desk.producer.acknowledge()
    await quiet()
    assert desk.producer.take() == [delta("bcd", 1, 1), done("abcd"), delta("x", 0, request_id="q")]
    assert desk.settled == [], "not before the broker has it"
    desk.producer.acknowledge()
    await quiet()
    assert desk.settled == ["r"]


async def test_a_slow_partition_holds_up_no_other(desk: Desk) -> None:
    desk.producer.held = True
    desk.end(HOME, done("x"))
    await quiet()
    desk.producer.held = False
    desk.end(ELSEWHERE, done("y", "q"))
    desk.producer._open.pop()[0].add_done_callback(lambda _: None)
    await quiet()
    assert desk.settled == ["q"]


async def test_after_a_failed_round_only_terminal_events_are_sent_again(desk: Desk) -> None:
    desk.producer.held = True
    desk.publisher.delta(HOME, delta("half", 0, request_id="p"))
    desk.publisher.delta(HOME, delta("a", 0))
    desk.end(HOME, done("a"))
    await quiet()
    desk.producer.take()
    desk.producer.fails = lambda _: BrokerUnavailable("away")
    desk.producer.acknowledge()
    await quiet()
    assert desk.producer.take() == [done("a")]
    assert desk.settled == []
    desk.producer.fails = lambda _: None
    desk.producer.acknowledge()
    await quiet()
    assert desk.settled == ["r"]
    assert desk.producer.take() == []


@pytest.mark.parametrize(
    ("at", "error"),
    [
        ("fails", BrokerUnavailable("away")),
        ("fails", TopicAuthorizationFailedError(HOME[0])),
        ("refuses", BrokerUnavailable("not connected")),
        ("refuses", RuntimeError("the transport is closed")),
    ],
)
async def test_a_terminal_event_is_sent_until_it_is_acknowledged_and_settled_once(
    desk: Desk, at: str, error: Exception
) -> None:
    """Whether the broker takes nothing, acknowledges nothing, is not allowed to by its operator, or the producer
    stumbles."""
    failures = iter([error] * 5)
    setattr(desk.producer, at, lambda _: next(failures, None))
    desk.end(HOME, done("a"))
    with capture_logs():
        await desk.publisher.flush()
    assert desk.producer.take() == [done("a")] * (6 if at == "fails" else 1)
    assert desk.settled == ["r"]


@pytest.mark.parametrize(
    ("refusal", "at"),
    [
        (ProtocolError("unknown_topic", "no such"), "refuses"),
        (TopicAuthorizationFailedError(ELSEWHERE[0]), "fails"),
        (MessageSizeTooLargeError("1 MiB"), "fails"),
    ],
    ids=["no topic", "acl", "size"],
)
async def test_what_the_broker_refuses_for_good_is_settled_and_not_sent_again(
    desk: Desk, refusal: Exception, at: str
) -> None:
    """It cannot be answered there, and other requests are served. Some refusals arrive only with the
    acknowledgement."""
    setattr(desk.producer, at, lambda what: refusal if what_of(what) == "q" else None)
    before = REGISTRY.get_sample_value("replyline_records_ignored_total", {"what": "reply"}) or 0.0
    desk.end(ELSEWHERE, done("a", "q"))
    desk.end(HOME, done("b"))
    async with asyncio.timeout(5):
        await desk.publisher.flush()
    assert sorted(desk.settled) == ["q", "r"]
    assert desk.producer.take() == [*([done("a", "q")] if at == "fails" else []), done("b")]
    assert REGISTRY.get_sample_value("replyline_records_ignored_total", {"what": "reply"}) == before + 1


def what_of(what: Outgoing | Reply) -> str | None:
    """Whose answer it is."""
    return decode_reply(what.value).request_id if isinstance(what, Outgoing) else what.request_id


async def test_an_end_that_is_said_again_is_settled_when_both_are_acknowledged(desk: Desk) -> None:
    """Once: what has not left yet is one record."""
    desk.producer.held = True
    desk.end(HOME, done("a"))
    await quiet()
    for _ in range(3):
        desk.end(HOME, done("a"))
    desk.producer.acknowledge()
    await quiet()
    assert desk.settled == []
    desk.producer.acknowledge()
    await quiet()
    assert desk.producer.take() == [done("a")] * 2
    assert desk.settled == ["r"] * 4, "each time it was said"


async def test_an_end_that_failed_leaves_before_one_that_came_meanwhile(desk: Desk) -> None:
    desk.producer.held = True
    desk.end(HOME, done("the answer"))
    await quiet()
    desk.end(HOME, done(""))
    desk.producer.fails = lambda _: BrokerUnavailable("away")
    desk.producer.acknowledge()
    await quiet()
    desk.producer.fails = lambda _: None
    desk.producer.acknowledge()
    await quiet()
    assert desk.producer.take() == [done("the answer")] * 2
    assert desk.settled == ["r"] * 2, "each time it was said"


async def test_who_is_let_go_leaves_nothing_behind_and_is_told_from_the_beginning_if_it_comes_back(desk: Desk) -> None:
    desk.publisher.delta(HOME, delta("a", 0, request_id="q"))
    desk.publisher.delta(HOME, delta("a", 0))
    await quiet()
    desk.producer.held = True
    desk.publisher.delta(HOME, delta("b", 1, 1, request_id="q"))
    desk.publisher.forget(HOME, "q")
    desk.publisher.delta(HOME, delta("b", 1, 1))
    await quiet()
    lane = desk.publisher._lanes[HOME]
    assert lane._next_seq.keys() == {"r"}
    assert desk.producer.take() == [delta("a", 0, request_id="q"), delta("a", 0), delta("b", 1, 1)]
    desk.publisher.delta(HOME, delta("ab", 0, request_id="q"))
    desk.producer.held = False
    desk.producer.acknowledge()
    await quiet()
    assert desk.producer.take() == [delta("ab", 0, request_id="q")]
    desk.publisher.forget(ELSEWHERE, "q")
    assert ELSEWHERE not in desk.publisher._lanes


async def test_the_end_of_another_record_of_its_id_leaves_though_it_was_let_go(desk: Desk) -> None:
    """It never became an answer, and its record waits for it."""
    desk.publisher.delta(HOME, delta("a", 0))
    desk.end(HOME, done(""))
    desk.publisher.forget(HOME, "r")
    await desk.publisher.flush()
    assert desk.producer.take() == [done("")]
    assert desk.settled == ["r"]


@pytest.mark.parametrize(
    ("deltas", "merged"),
    [
        ([(0, "Hey"), (3, " you")], (0, "Hey you")),
        ([(0, "Hey"), (2, "y you")], (0, "Hey you")),
        ([(3, " you"), (0, "Hey you!")], (0, "Hey you!")),
        ([(0, "Hey you"), (0, "Hey"), (4, "you!")], (0, "Hey you!")),
        ([(0, "Hey"), (5, "you")], (0, "Hey")),
    ],
    ids=["in-order", "overlapping", "told-from-its-beginning", "told-again", "behind-a-gap"],
)
async def test_deltas_of_one_round_are_merged_by_their_place(
    desk: Desk, deltas: list[tuple[int, str]], merged: tuple[int, str]
) -> None:
    """A reader that joins later receives the answer from its beginning while it continues."""
    for offset, text in deltas:
        desk.publisher.delta(HOME, delta(text, offset))
    await quiet()
    [reply] = desk.producer.take()
    assert isinstance(reply, ReplyDelta)
    assert (reply.offset, reply.delta) == merged


# --- an exception in our code in one answer of a round


async def test_an_end_that_cannot_be_encoded_is_told_as_failed_and_the_others_leave(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def encode(message: Reply) -> bytes:
        if isinstance(message, ReplyDone) and message.output_text == "unspeakable":
            raise UnicodeEncodeError("utf-8", "x", 0, 1, "surrogates not allowed")
        return msgpack_encode(message)

    monkeypatch.setattr(reply_publisher, "msgpack_encode", encode)
    for name, text in (("p", "yes"), ("q", "unspeakable"), ("r", "no")):
        desk.end(HOME, done(text, name))
    with capture_logs() as lines:
        await desk.publisher.flush()
    ends = {reply.request_id: reply for reply in desk.producer.take() if isinstance(reply, ReplyDone)}
    assert {name: (end.status, end.output_text) for name, end in ends.items()} == {
        "p": ("completed", "yes"),
        "q": ("failed", ""),
        "r": ("completed", "no"),
    }
    assert desk.settled == ["p", "q", "r"]
    assert "unspeakable" not in str(lines)


async def test_a_fault_in_what_is_told_of_one_end_keeps_no_lane_from_its_others(desk: Desk) -> None:
    def settled() -> None:
        raise KeyError("a fault of our own")

    with capture_logs():
        desk.publisher.done(HOME, done("yes", "p"), settled)
        desk.end(HOME, done("yes", "q"))
        await desk.publisher.flush()
        desk.end(HOME, done("yes", "r"))
        await desk.publisher.flush()
    assert desk.settled == ["q", "r"]
    assert not desk.publisher.failed.is_set()
