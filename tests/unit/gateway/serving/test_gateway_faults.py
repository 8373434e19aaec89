"""A fault of our own harms one answer: thrown at every call that a gateway's handlers make, one at a time."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.kafka.fleet_reader import read_reports
from gateway.request.cursor import CursorKey, Place, Told, digest_of, response_id
from gateway.request.entry import Entry
from gateway.session.protocol import CloseCode
from shared.kafka import Record
from shared.wire.messages import (
    Response,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    Resume,
    SessionStart,
)
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateways import Edge, FakeConnection, delta, done, quiet, until
from tests.support.hostile.saboteur import Saboteur, Thrown, each_call

SOFT_MS, HARD_MS, GRACE_MS = 1_000, 5_000, 250
QUESTION = "How do I return an item?"
# What becomes of each question where nothing is wrong: whose words it has, its status and why it ended.
ENDS = {
    "plain": ("model", "completed", "stop"),
    "silent": ("faq", "completed", "stop"),
    "slow": ("model", "incomplete", "deadline"),
    "empty": ("faq", "completed", "stop"),
    "stopped": ("model", "cancelled", "client"),
}


@dataclass
class VirtualAlarm:
    """It rings when the test says so."""

    rings: Callable[[], None]
    due_unix_ms: int | None = None

    def set(self, due_unix_ms: int | None) -> None:
        if due_unix_ms is not None:
            self.due_unix_ms = min(self.due_unix_ms or due_unix_ms, due_unix_ms)

    def ring(self) -> None:
        self.due_unix_ms = None
        with suppress(Thrown):  # the event loop would log it
            self.rings()


@dataclass
class Day:
    """Five clients, each with a question, on one gateway; time is the test's."""

    edge: Edge
    alarm: VirtualAlarm
    now_unix_ms: float = 1_000_000_000_000.0
    clients: dict[str, FakeConnection] = field(default_factory=dict)
    before: dict[str, list[FakeConnection]] = field(default_factory=lambda: {name: [] for name in ENDS})

    def entry(self, name: str) -> Entry | None:
        table = self.edge.gateway.inflight._thing  # type: ignore[attr-defined] # looking makes no call
        found: Entry | None = table.find(SessionKey("demo", name), name)
        return found

    async def begin(self) -> None:
        for name in ENDS:
            await self.come(name)
        await quiet()

    async def come(self, name: str) -> None:
        """A client, or one that comes back and asks again; one that meets a fault of ours once more, too."""
        for _ in range(3):
            try:
                client = self.clients[name] = self.edge.connect()
            except Thrown:  # as the front end closes it
                continue
            asks = ResponseCreate(event_id=name, input=QUESTION, first_token_ms=SOFT_MS, deadline_ms=HARD_MS)
            if await self.say(name, SessionStart(session_id=name), asks) and client.closed_with is None:
                return
            self.lose(name)

    async def say(self, name: str, *messages: SessionStart | ResponseCreate | ResponseCancel) -> bool:
        try:
            await self.clients[name].say(*messages)
        except Thrown:  # as the front end does
            self.clients[name].close(CloseCode.INTERNAL, "internal error")
            return False
        return True

    def lose(self, name: str) -> None:
        self.before[name].append(self.clients[name])
        with suppress(Thrown):
            self.clients[name].lose()

    async def pass_on(self) -> None:
        """Whoever was told to come back does; whatever is due is due now."""
        for _ in range(3):
            while self.alarm.due_unix_ms is not None and self.alarm.due_unix_ms <= self.now_unix_ms:
                self.alarm.ring()
            await quiet()
            for name, client in list(self.clients.items()):
                if client.closed_with is not None:
                    self.lose(name)
                    await self.come(name)

    def reply(self, *replies: tuple[str, str, str]) -> None:
        """A batch from the workers: deltas and ends of these questions, where they are open."""
        batch = [
            (delta if kind == "delta" else done)(entry.response_id, text, session_id=name)
            for kind, name, text in replies
            if (entry := self.entry(name)) is not None
        ]
        self.edge.gateway.replied(batch)  # what it raises ends the process

    async def run(self) -> None:
        await self.begin()
        await self.pass_on()
        self.reply(("delta", "slow", "Within 30"), ("delta", "plain", "Within"), ("delta", "stopped", "With"))
        await self.pass_on()
        self.reply(("done", "empty", ""), ("done", "plain", "Within 30 days."))
        await self.pass_on()
        await self.say("stopped", ResponseCancel(target_event_id="stopped"))
        for after_ms in (SOFT_MS + 1, HARD_MS + 1, HARD_MS + GRACE_MS):
            self.now_unix_ms = 1_000_000_000_000.0 + after_ms
            await self.pass_on()
        # Who had to ask anew has a deadline of its own.
        while latest := max([entry.deadline.deadline_unix_ms for entry in self.open()], default=0):
            if self.now_unix_ms > latest + GRACE_MS:
                break
            self.now_unix_ms += SOFT_MS / 4
            await self.pass_on()
        await until(self.settled, limit_s=2)
        await quiet()

    def settled(self) -> bool:
        if self.alarm.due_unix_ms is not None and self.alarm.due_unix_ms <= self.now_unix_ms:
            self.alarm.ring()
        return not self.open()

    def open(self) -> list[Entry]:
        return [entry for name in ENDS if (entry := self.entry(name)) is not None and not entry.done]

    def ends(self) -> dict[str, Response]:
        """Each question's end, as its client heard it last. Asserts that every telling was right."""
        found: dict[str, Response] = {}
        for name, client in self.clients.items():
            for connection in [*self.before[name], client]:
                ends = told(connection)
            assert len(ends) == 1, f"{name} has {len(ends)} ends"
            found[name] = ends[0]
        return found


def told(connection: FakeConnection) -> list[Response]:
    """The ends that a connection heard; each behind its text, in order and without a gap, and once."""
    texts: dict[str, str] = {}
    ends: dict[str, Response] = {}
    for message in connection.heard:
        match message:
            case ResponseCreated():
                assert message.response_id not in ends, "opened behind its end"
                texts[message.response_id] = ""
            case ResponseDelta():
                assert message.response_id not in ends, "text behind the end"
                assert message.offset == len(texts.get(message.response_id, "")), "a gap"
                assert message.response_id in texts, "never opened"
                texts[message.response_id] += message.delta
            case ResponseDone():
                assert message.response.id not in ends, "a second end"
                assert message.response.output_text == texts.get(message.response.id), "not the text of its deltas"
                ends[message.response.id] = message.response
    return list(ends.values())


@pytest.fixture
def day(monkeypatch: pytest.MonkeyPatch) -> Callable[[int | None], Day]:
    def begin(at: int | None) -> Day:
        saboteur = Saboteur(at)
        alarms: list[VirtualAlarm] = []

        def make(rings: Callable[[], None]) -> VirtualAlarm:
            alarms.append(VirtualAlarm(rings))
            return saboteur.before(alarms[0])

        monkeypatch.setattr("gateway.serving.gateway.DeadlineTimer", make)
        made = Day(Edge(saboteur=saboteur), alarms[0] if alarms else VirtualAlarm(lambda: None))
        made.alarm = alarms[0]
        for module in ("gateway", "answering", "erasure"):
            for clock in ("now_unix_ms", "wire_unix_ms"):
                monkeypatch.setattr(f"gateway.serving.{module}.{clock}", lambda: made.now_unix_ms, raising=False)
        return made

    return begin


def as_expected(end: Response, name: str) -> bool:
    return (end.source, end.status, end.reason) == ENDS[name]


async def test_without_a_fault_each_question_ends_as_it_should(day: Callable[[int | None], Day]) -> None:
    today = day(None)
    await today.run()
    assert [name for name, end in today.ends().items() if not as_expected(end, name)] == []
    assert len(today.edge.saboteur.calls) > 100


async def test_a_fault_at_any_call_harms_one_answer_at_most(day: Callable[[int | None], Day]) -> None:
    """That one has its one end too, and no later than any other; all others are as they would have been."""
    counted = day(None)
    await counted.run()
    broken = []
    for at in each_call(counted.edge.saboteur):
        today = day(at)
        try:
            with capture_logs():
                await today.run()
            harmed_one_at_most(today)
        except (AssertionError, LookupError, TimeoutError, Thrown) as error:
            broken.append(f"thrown at call {at}, {today.edge.saboteur.threw_at}: {error or 'an answer has no end'}")
    assert broken == [], "\n".join(broken)


def harmed_one_at_most(today: Day) -> None:
    harmed = {name for name, end in today.ends().items() if not as_expected(end, name)}
    harmed |= {name for name, lost in today.before.items() if lost}
    assert len(harmed) <= 1, f"it harmed {harmed}"
    assert [client.num_inflight for client in today.clients.values()] == [0] * len(ENDS), "books are open"


async def test_a_question_that_cannot_be_read_fails_its_answer_alone(
    day: Callable[[int | None], Day], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an answer that another gateway began; its deadline has come, and no other will."""
    today = day(None)
    gateway, now = today.edge.gateway, int(today.now_unix_ms)
    told = Told(
        digest=digest_of(response_id(SessionKey("demo", "adopted"), "adopted", QUESTION)),
        event_id="adopted",
        bucket="short",
        received_unix_ms=now,
        first_token_ms=SOFT_MS,
        deadline_ms=HARD_MS,
        log=Place(1, 0),
        request=Place(0, 7),
        chars=0,
        crc=0,
    )

    def unreadable(*_: object) -> None:
        raise Thrown("question")

    monkeypatch.setattr(today.edge.questions, "ask", unreadable)
    cursor = CursorKey(b"secret").seal(SessionKey("demo", "adopted")).write([told])
    client = await today.edge.connect().say(SessionStart(session_id="adopted", resume=Resume(cursor=cursor)))
    with capture_logs():
        await until(lambda: client.ends)
        await quiet()
    assert [(end.status, end.reason) for end in client.ends] == [("failed", "internal")]
    assert client.ends[0].error is not None
    assert (client.num_inflight, len(gateway.inflight)) == (0, 0)


class Reports:
    """A topic with two workers' reports."""

    def __init__(self) -> None:
        self.unread = [
            Record("chat.workers", 0, offset, name.encode(), None) for offset, name in enumerate(("bad", "good"))
        ]

    async def start(self) -> None: ...

    async def read(self) -> list[Record]:
        records, self.unread = self.unread, []
        await asyncio.sleep(0)
        return records


async def test_a_report_that_cannot_be_taken_keeps_no_other_from_being_heard() -> None:
    heard: list[str] = []

    def reported(worker_id: str, _: object) -> None:
        if worker_id == "bad":
            raise Thrown("reported")
        heard.append(worker_id)

    reader: Any = Reports()
    reading = asyncio.create_task(read_reports(reader, reported))
    with capture_logs():
        await until(lambda: heard)
    reading.cancel()
    assert heard == ["good"]
