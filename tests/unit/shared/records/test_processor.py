"""A record is done once it is handled, or once the client has its error and the dead letter is stored, for every
fault of a record.
"""

import asyncio
import json
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Record
from shared.records import dead_letters, processor
from shared.records.dead_letters import DeadLetters
from shared.records.offsets import OffsetTracker
from shared.records.processor import RecordProcessor
from shared.settings import Settings
from shared.wire.messages import ChatRequest, ReplyDone
from shared.wire.requests import Target
from shared.wire.topics import TopicNames
from tests.support.fakes.gateways import quiet
from tests.support.hostile.poison_records import packed

EXTERNAL: Target = ("chat.replies.external", None)


@dataclass
class Bench:
    """A processor with this object as all its collaborators. Deliveries are noted immediately, as delivery `number`
    (None: the partition was lost). A question's text selects its failure; the others are `handled`; Kafka is `away` for
    this many more tries. `told` holds the terminal events of rejected records, acknowledged by the test.
    """

    number: int | None = 1
    away: float = 0
    offsets: OffsetTracker = field(default_factory=OffsetTracker)

    def __post_init__(self) -> None:
        self.handled, self.letters = list[str](), list[Outgoing]()
        self.told: list[tuple[Target, ReplyDone, asyncio.Event]] = []
        myself: Any = self
        self.processor = RecordProcessor(
            self.offsets,
            myself,
            DeadLetters(myself, TopicNames(), "worker-1"),
            Settings().request_defaults,
            handle=self.handle,
            refuse=self.refuse,
        )

    async def take(self, *values: bytes, fault: Exception | None = None, **headers: bytes) -> None:
        for at, value in enumerate(values):
            record = Record("chat.requests", 0, at, b"k", value, headers)
            self.offsets.open(*record.origin)
            self.processor.start(record, fault)
        await quiet()

    @property
    def position(self) -> int:
        """Return the offset below which every record is done."""
        return self.offsets.positions["chat.requests", 0]

    @property
    def reasons(self) -> list[str]:
        return [letter.headers["dead-letter-reason"].decode() for letter in self.letters]

    def _try(self) -> None:
        self.away -= 1
        if self.away >= 0:
            raise BrokerUnavailable("no leader")

    async def await_delivery(self, *_: object) -> int | None:
        return self.number

    async def publish(self, record: Outgoing) -> None:
        await asyncio.sleep(0)
        self._try()
        self.letters.append(record)

    async def handle(self, request: ChatRequest, record: Record) -> None:
        if request.input == "long":
            raise ProtocolError("input_too_long", "the input is too long")
        if request.input == "fault":
            raise ZeroDivisionError("my card is 4111")
        self._try()
        self.handled.append(request.id)
        if request.input != "later":
            self.offsets.done(*record.origin)

    async def refuse(self, target: Target, end: ReplyDone) -> None:
        if end.request_id == "unlucky":
            self._try()
        acknowledged = asyncio.Event()
        self.told.append((target, end, acknowledged))
        await acknowledged.wait()


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    monkeypatch.setattr(dead_letters, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(processor, "_RETRY_S", 0.0)


async def test_a_record_is_done_when_its_handler_returns() -> None:
    bench = Bench()
    await bench.take(packed(id="r0"), packed(id="r1", input="later"), packed(id="r2"))
    assert (bench.handled, bench.position) == (["r0", "r1", "r2"], 1)


async def test_a_record_that_kafka_did_not_accept_is_handled_again_and_its_end_published_again() -> None:
    bench = Bench(away=3)
    await bench.take(packed(id="r"))
    assert (bench.handled, bench.letters, bench.position) == (["r"], [], 1)
    bench.away = 3
    with capture_logs():
        await bench.take(packed(id="unlucky", input="long"))
    assert ([end.request_id for _, end, _ in bench.told], bench.reasons) == (["unlucky"], ["input_too_long"])


@pytest.mark.parametrize(("question", "code"), [("long", "input_too_long"), ("fault", "internal")])
async def test_a_rejected_record_is_done_after_its_end_and_its_dead_letter_are_stored(question: str, code: str) -> None:
    bench = Bench()
    with capture_logs():
        await bench.take(packed(id="r", input=question), packed(id="good"))
    [(target, end, acknowledged)] = bench.told
    assert (target, end.request_id, end.session_id) == (EXTERNAL, "r", "s1")
    assert (end.status, end.reason, end.output_text) == ("failed", "internal", "")
    assert end.error is not None
    assert (end.error.code, bench.reasons) == (code, [code])
    assert "4111" not in f"{end.error.message} {bench.letters[0].headers}"
    assert (bench.handled, bench.position) == (["good"], 0), "its end is being published"
    acknowledged.set()
    await quiet()
    assert bench.position == 2


async def test_a_dead_letter_is_retried_until_stored_and_the_client_does_not_wait_for_it() -> None:
    bench = Bench(away=float("inf"))
    with capture_logs() as lines:
        await bench.take(packed(id="r", input="long"))
        [(_, _, acknowledged)] = bench.told
        acknowledged.set()
        await quiet()
        assert bench.position == 0
        bench.away = 0
        await quiet()
    assert (bench.reasons, bench.position) == (["input_too_long"], 1)
    assert [line["event"] for line in lines] == ["unavailable", "dead_letter"], "it is logged once"


async def test_no_end_is_sent_to_a_reply_topic_that_is_not_allowed() -> None:
    bench = Bench()
    await bench.take(
        packed(id="r", input="long", reply_topic="payments"), packed(id="q", input="long", reply_partition=2**40)
    )
    assert (bench.told, len(bench.letters), bench.position) == ([], 2, 2)


async def test_the_client_of_a_contradictory_record_gets_its_end_as_the_value_says() -> None:
    bench = Bench()
    await bench.take(packed(id="r"), b"\xc1", ce_id=b"other")
    assert [(target, end.request_id) for target, end, _ in bench.told] == [(EXTERNAL, "r"), (EXTERNAL, "other")]
    for _, _, acknowledged in bench.told:
        acknowledged.set()
    await quiet()
    assert (bench.reasons, bench.position) == (["header_mismatch", "invalid_record"], 2)


@pytest.mark.parametrize(
    ("value", "headers", "told"),
    [
        (packed(id="r", temperature=9), {}, ("r", "s1")),
        (packed(id="r", input=None), {}, ("r", "s1")),
        (json.dumps({"id": 7, "session_id": 42, "reply_topic": "chat.replies.external"}).encode(), {}, ("7", "42")),
        (b"\xc1", {"ce_id": b'"r"', "Reply-Topic": b'"chat.replies.external"'}, ("r", "")),
        (packed(id="order 7/1", session_id="a b"), {}, ("order 7/1", "a b")),
    ],
    ids=["a wrong field", "a missing field", "too little", "headers alone", "names that may not be"],
)
async def test_the_client_of_an_invalid_request_record_gets_its_end(
    value: bytes, headers: dict[str, bytes], told: tuple[str, str]
) -> None:
    bench = Bench()
    await bench.take(value, **headers)
    [(target, end, _)] = bench.told
    assert (target, end.status, (end.request_id, end.session_id)) == (EXTERNAL, "failed", told)
    assert end.error is not None
    assert (end.error.code, bench.reasons) == ("invalid_record", ["invalid_record"])


async def test_a_record_without_an_id_or_an_allowed_topic_becomes_a_dead_letter_only() -> None:
    bench = Bench()
    await bench.take(packed(id=None), packed(id="x" * 300), packed(id="r", temperature=9, reply_topic="payments"))
    assert (bench.told, len(bench.letters), bench.position) == ([], 3, 3)


async def test_after_an_early_fault_a_record_is_decoded_to_find_its_client() -> None:
    bench = Bench()
    with capture_logs():
        await bench.take(packed(id="r"), b"\xc1", fault=KeyError("a fault of our own"))
    [(target, end, _)] = bench.told
    assert (target, end.request_id, bench.handled) == (EXTERNAL, "r", [])
    assert bench.reasons == ["internal", "internal"]


async def test_a_record_that_ended_four_processes_is_set_aside_and_its_client_gets_an_end() -> None:
    bench = Bench(number=5)
    with capture_logs():
        await bench.take(packed(id="r"))
    [(target, end, acknowledged)] = bench.told
    assert (target, end.request_id, end.status) == (EXTERNAL, "r", "failed")
    assert end.error is not None
    assert (end.error.code, end.error.retryable) == ("poison", False)
    assert (bench.reasons, bench.handled) == (["poison"], [])
    acknowledged.set()
    await quiet()
    assert bench.position == 1


async def test_a_record_that_ends_a_process_while_it_is_decoded_is_not_decoded_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its client gets no end, because the client's address is inside the record."""

    def deadly(*_: object, **__: object) -> None:
        raise AssertionError("it is decoded")

    monkeypatch.setattr(processor, "open_request", deadly)
    bench = Bench(number=6)
    with capture_logs():
        await bench.take(packed(id="r"))
    assert (bench.told, bench.reasons, bench.position) == ([], ["poison"], 1)


async def test_a_record_that_moves_to_another_process_before_processing_is_left_to_it() -> None:
    bench = Bench(number=None)
    await bench.take(packed(id="r"))
    assert (bench.handled, bench.letters, bench.told, bench.position) == ([], [], [], 0)


async def test_a_hundred_records_waiting_for_dead_letters_take_no_processing_slot() -> None:
    bench = Bench(away=float("inf"))
    with capture_logs():
        await bench.take(*(packed(id=f"r{number}", input="long") for number in range(103)))
    assert (len(bench.processor.busy), len(bench.processor.tasks)) == (3, 103)
    await bench.processor.tasks.drain(0)
    assert (len(bench.processor.busy), bench.position) == (0, 0), "no offset is committed"
