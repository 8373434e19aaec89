"""What a worker refuses is told to who asked and kept as a dead letter; its record is done when both stand."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.records import dead_letters as deadletters
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.records.requests import Defaults, Order
from shared.settings import Settings
from shared.wire.messages import ReplyDone
from tests.support.fakes.gateways import quiet
from tests.support.hostile.poison_records import packed
from tests.unit.workers.intake.test_reader import SHORT, TOPICS, FakeCommits, FakeReader, FakeWorker
from workers.intake.cancels import RecentCancels
from workers.intake.reader import Intake
from workers.request.reply_publisher import Target

EXTERNAL: Target = ("chat.replies.external", None)


@dataclass
class FakeProducer:
    """Takes a dead letter unless it is `away`."""

    away: bool = False
    letters: list[Outgoing] = field(default_factory=list)
    tries: int = 0

    async def publish(self, record: Outgoing) -> None:
        self.tries += 1
        await asyncio.sleep(0)
        if self.away:
            raise BrokerUnavailable("no leader")
        self.letters.append(record)


@dataclass
class Worker(FakeWorker):
    """`told` are the ends of what is refused; each is acknowledged by the test."""

    told: list[tuple[Target, ReplyDone, "asyncio.Future[None]"]] = field(default_factory=list)
    served: list[str] = field(default_factory=list)

    def refuse(self, target: Target, done: ReplyDone) -> "asyncio.Future[None]":
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.told.append((target, done, future))
        return future


@dataclass
class Preparer:
    """A question that is `refused` by what it says; nothing comes of others."""

    refused: dict[str, Exception] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)

    async def prepare(self, order: Order, now_unix_ms: float) -> None:
        self.begun.append(order.request.id)
        error = self.refused.get(order.request.input)
        if error is not None:
            raise error
        await asyncio.Event().wait()


TOO_LONG = ProtocolError("input_too_long", "the input has 9 tokens, 8 are allowed", param="input")


@dataclass
class Bench:
    producer: FakeProducer = field(default_factory=FakeProducer)
    worker: Worker = field(default_factory=Worker)
    preparer: Preparer = field(
        default_factory=lambda: Preparer({"long": TOO_LONG, "fault": ZeroDivisionError("my card is 4111")})
    )
    offsets: OffsetTracker = field(default_factory=OffsetTracker)
    commits: FakeCommits = field(default_factory=FakeCommits)
    intake: Intake = field(init=False)

    def __post_init__(self) -> None:
        fakes: dict[str, Any] = {"reader": FakeReader(), "preparer": self.preparer, "worker": self.worker}
        producer: Any = self.producer
        self.intake = Intake(
            letters=DeadLetters(producer, TOPICS),
            topics=TOPICS,
            defaults=Defaults.of(Settings()),
            offsets=self.offsets,
            commits=self.commits,  # type: ignore[arg-type]
            cancelled=RecentCancels(),
            **fakes,
        )

    async def take(self, *values: bytes) -> None:
        first = self.offsets.num_open
        self.intake._sort([Record(SHORT, 0, first + at, b"k", value) for at, value in enumerate(values)])
        self.intake._begin_what_fits()
        await quiet()

    @property
    def done(self) -> bool:
        return bool(self.offsets.committable())


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pause between two tries."""
    monkeypatch.setattr(deadletters, "_FIRST_PAUSE_S", 0.0)


@pytest.mark.parametrize(("question", "code"), [("long", "input_too_long"), ("fault", "internal")])
async def test_who_asked_is_told_and_the_record_is_done_when_end_and_letter_stand(question: str, code: str) -> None:
    bench = Bench()
    with capture_logs():
        await bench.take(packed(id="r", input=question))
    [(target, end, acknowledged)] = bench.worker.told
    assert (target, end.request_id, end.session_id) == (EXTERNAL, "r", "s1")
    assert (end.status, end.reason, end.output_text) == ("failed", "internal", "")
    assert end.error is not None
    assert end.error.code == code
    assert bench.producer.letters[0].headers["dead-letter-reason"] == code.encode()
    assert "4111" not in f"{end.error.message} {bench.producer.letters[0].headers}"
    assert not bench.done, "its end is on its way"
    acknowledged.set_result(None)
    await quiet()
    assert bench.done


@pytest.mark.usefixtures("at_once")
async def test_a_letter_is_written_until_it_stands_and_who_asked_does_not_wait_for_it() -> None:
    bench = Bench(producer=FakeProducer(away=True))
    with capture_logs() as lines:
        await bench.take(packed(id="r", input="long"))
        [(_, _, acknowledged)] = bench.worker.told
        acknowledged.set_result(None)
        await quiet()
        assert bench.producer.tries > 3
        assert not bench.done
        bench.producer.away = False
        await quiet()
    assert len(bench.producer.letters) == 1
    assert bench.done
    assert [line["event"] for line in lines] == ["unavailable", "dead_letter"], "it is said once"


async def test_letters_that_cannot_be_written_keep_nobody_else_from_being_served() -> None:
    bench = Bench(producer=FakeProducer(away=True))
    with capture_logs():
        for number in range(10):
            await bench.take(*(packed(id=f"bad-{number}-{each}", input="long") for each in range(8)))
        await bench.take(packed(id="good", input="hello"))
        for _ in range(10):
            bench.intake._begin_what_fits()
            await quiet()
    assert bench.preparer.begun[-1] == "good"
    await bench.intake.finish(0)
    assert bench.offsets.num_open == 81, "none is committed"


async def test_who_names_a_reply_topic_that_is_not_allowed_is_told_nowhere() -> None:
    """Nor who contradicts himself."""
    bench = Bench()
    bench.intake._sort([Record(SHORT, 0, 0, b"k", packed(id="s"), {"ce_id": b"other"})])
    await bench.take(packed(id="r", input="long", reply_topic="payments"), packed(id="q", reply_partition=2**40))
    assert bench.worker.told == []
    assert len(bench.producer.letters) == 3
    assert bench.done


async def test_headers_at_which_the_intake_stumbles_set_one_record_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are looked at before anything is opened, many records at a time."""
    bench = Bench()
    fate = bench.intake._triage.fate

    def stumble(headers: Any, key: bytes | None, now: float) -> Any:
        if headers.get("x") == b"bad":
            raise KeyError("a fault of our own")
        return fate(headers, key, now)

    monkeypatch.setattr("workers.intake.triage.Triage.fate", lambda _, *given: stumble(*given))
    with capture_logs():
        records = [Record(SHORT, 0, at, b"k", packed(id=f"r{at}"), {"x": x}) for at, x in enumerate((b"", b"bad", b""))]
        bench.intake._sort(records)
        bench.intake._begin_what_fits()
        await quiet()
    assert bench.preparer.begun == ["r0", "r2"]
    [letter] = bench.producer.letters
    assert letter.headers["dead-letter-origin"] == b"chat.requests.short/0/1"
    await bench.intake.finish(0)


async def test_a_record_that_has_ended_three_workers_is_set_aside_unserved_and_who_asked_is_told() -> None:
    bench = Bench(commits=FakeCommits(number=4))
    with capture_logs():
        await bench.take(packed(id="r", input="hello"))
    [(target, end, acknowledged)] = bench.worker.told
    assert (target, end.request_id, end.status) == (EXTERNAL, "r", "failed")
    assert end.error is not None
    assert (end.error.code, end.error.retryable) == ("poison", False)
    assert bench.producer.letters[0].headers["dead-letter-reason"] == b"poison"
    assert bench.preparer.begun == []
    acknowledged.set_result(None)
    await quiet()
    assert bench.done


async def test_one_that_has_ended_a_worker_even_then_is_not_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody can be told: whom to tell stands in it."""

    def deadly(*_: object, **__: object) -> None:
        raise AssertionError("it is opened")

    monkeypatch.setattr("workers.intake.reader.open_request", deadly)
    bench = Bench(commits=FakeCommits(number=5))
    with capture_logs():
        await bench.take(packed(id="r", input="hello"))
    assert bench.worker.told == []
    assert bench.producer.letters[0].headers["dead-letter-reason"] == b"poison"
    assert bench.done


async def test_what_goes_to_another_worker_before_it_is_worked_on_is_left_to_that() -> None:
    bench = Bench(commits=FakeCommits(number=None))
    await bench.take(packed(id="r", input="hello"))
    assert (bench.preparer.begun, bench.producer.letters, bench.worker.told) == ([], [], [])
    assert not bench.done
