"""Two gateways and a worker on one Kafka and one Redis: each reads what stands there when it is told to.

The worker is the real one, but for its engine's text: each computation writes its own number, so that whoever shows a
text shows what was computed when.
"""

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec import msgpack

from gateway.request.cursor import Place
from shared.conversation.turn import Turn
from shared.faq.fallback import Fallback
from shared.kafka import Outgoing
from shared.process.clock import now_unix_ms
from shared.wire.codec import decode_erase, decode_notice, decode_reply
from shared.wire.messages import (
    Adopt,
    ChatRequest,
    Erase,
    Notice,
    Reply,
    ReplyDelta,
    ReplyDone,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    Resume,
    ServerMessage,
    SessionCreated,
    SessionDelete,
    SessionDeleted,
    SessionStart,
)
from shared.wire.requests import settle
from shared.wire.session_key import SessionKey
from tests.support.builders.worker import DEFAULTS, Bench
from tests.support.fakes.gateways import TOPICS, Edge, FakeConnection, FakeHistory, FakeProducer, quiet
from workers.answer.stream import Answer
from workers.engine import Sampling
from workers.prompt.conversation import Prompt
from workers.request.job import Job
from workers.request.recent_cancels import RecentCancels
from workers.request.reply_publisher import Target
from workers.schedule.sequence import Sequence
from workers.serving.worker import Worker

QUESTION = "How do I return an item?"
SESSION = SessionKey("demo", "s")
TOKENS = 3
_NUMBER = re.compile(r"<(\d+)>")


def computed(text: str) -> list[int]:
    """The computations that a text shows."""
    return [int(number) for number in _NUMBER.findall(text)]


@dataclass
class Log(FakeProducer):
    """Kafka: what stands in it, in its order, and the partitions of the replies."""

    replies: dict[int, list[Reply]] = field(default_factory=lambda: {0: [], 1: []})

    async def enqueue(self, record: Outgoing) -> "asyncio.Future[object]":
        if record.topic == TOPICS.replies:
            assert record.partition is not None
            self.replies[record.partition].append(decode_reply(record.value))
        return await super().enqueue(record)

    def requests(self) -> list[ChatRequest]:
        return [
            msgpack.decode(record.value or b"", type=ChatRequest)
            for record in self.published
            if record.topic.startswith(TOPICS.requests("short"))
        ]

    def notices(self) -> list[Notice]:
        return [decode_notice(record.value) for record in self.of(TOPICS.cancels)]

    def erasures(self) -> list[Erase]:
        return [decode_erase(record.value) for record in self.of(TOPICS.erasures)]


@dataclass
class Turns(FakeHistory):
    """Redis' turns: those of an erased generation are not taken, as long as its mark is there."""

    turns: list[Turn] = field(default_factory=list)

    def remember(self, session: SessionKey, turn: Turn) -> None:
        if not self.away and self.generations.get(SESSION, 0) <= turn.generation:
            self.turns.append(turn)

    def forget(self, session: SessionKey, generation: int) -> None:
        """Nothing is on its way for long."""

    async def delete(self, session: SessionKey, *, generation: int) -> int:
        begun = await super().delete(session, generation=generation)
        self.turns.clear()
        return begun


@dataclass
class Follower:
    """Reads another gateway's partition again from where an answer begins, and on."""

    log: Log
    replied: Callable[[list[Reply]], None] = lambda _: None
    places: dict[str, Place] = field(default_factory=dict)
    read: dict[int, int] = field(default_factory=dict)

    async def join(self, place: Place, session_id: str, response_id: str) -> None:
        self.places[response_id] = place
        self.read[place.partition] = min(place.offset, self.read.get(place.partition, place.offset))
        self.follow()

    def leave(self, partition: int, response_id: str) -> None:
        self.places.pop(response_id, None)

    def follow(self) -> None:
        for partition in {place.partition for place in self.places.values()}:
            records = self.log.replies[partition]
            new, self.read[partition] = records[self.read[partition] :], len(records)
            self.replied(new)


@dataclass
class Lanes:
    """The worker's publisher: what it says stands in the log at once, and is acknowledged when it is told so."""

    log: Log
    waiting: list[tuple[Target, ReplyDone]] = field(default_factory=list)

    def delta(self, target: Target, delta: ReplyDelta) -> None:
        self.log.replies[target[1] or 0].append(delta)

    def done(self, target: Target, done: ReplyDone) -> None:
        self.log.replies[target[1] or 0].append(done)
        self.waiting.append((target, done))

    def forget(self, target: Target, request_id: str) -> None:
        """Nothing waits here."""


@dataclass(repr=False)
class Client:
    """One socket's client: what it was told of each answer, and the epoch of the erasures that it knows of."""

    edge: int
    connection: FakeConnection
    names: dict[str, str] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    cursor: str = ""
    recovered: bool = False
    read: int = 0

    def hear(self) -> list[str]:
        """Take what it was told since the last time; the text that is new."""
        heard, self.read = self.connection.heard[self.read :], len(self.connection.heard)
        return [text for message in heard if (text := self._hear(message))]

    def _hear(self, message: ServerMessage) -> str:
        self.cursor = getattr(message, "cursor", None) or self.cursor
        match message:
            case SessionCreated():
                self.recovered = message.recovered
            case ResponseCreated():
                self.names[message.response_id] = message.event_id
                self.texts[message.response_id] = ""
                self.ends.pop(message.response_id, None)
            case ResponseDelta():
                assert message.response_id not in self.ends, "text after its end"
                assert message.offset == len(self.texts[message.response_id])
                self.texts[message.response_id] += message.delta
                return message.delta
            case ResponseDone(response):
                assert response.id not in self.ends, "a second end"
                assert response.output_text == self.texts[response.id], "an end with another text"
                self.ends[response.id] = response.status
            case _:
                pass
        return ""

    @property
    def open(self) -> list[str]:
        return [name for name in self.names if name not in self.ends]

    def ended(self, event_id: str) -> list[tuple[str, str]]:
        """How the last answer to an event ended, and its text; nothing where it is open."""
        last = [name for name, event in self.names.items() if event == event_id][-1:]
        return [(self.ends[name], self.texts[name]) for name in last if name in self.ends]


@dataclass
class World:
    """`epochs`: for each computation, how many erasures its asker had been told of when it asked."""

    log: Log = field(default_factory=Log)
    redis: Turns = field(default_factory=Turns)
    edges: list[Edge] = field(default_factory=list)
    worker: Worker = field(init=False)
    bench: Bench = field(default_factory=Bench)
    cancels: RecentCancels = field(default_factory=RecentCancels)
    epochs: list[int] = field(default_factory=list)
    asked_in: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=lambda: [0, 0])
    erased: int = 0
    clients: list[Client] = field(default_factory=list)
    prepared: int = 0
    delivered: list[int] = field(default_factory=lambda: [0, 0])
    heard: list[int] = field(default_factory=lambda: [0, 0, 0])
    stopped: int = 0
    put_back: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for partition in (0, 1):
            replies = self.log.replies[partition]
            follower = Follower(self.log)
            edge = Edge(
                producer=self.log,
                history=self.redis,
                follower=follower,
                partition=partition,
                next_offset=replies.__len__,
            )
            edge.questions.stands = QUESTION
            self.edges.append(edge)
        self.worker = self.bench.worker
        self.lanes = Lanes(self.log)
        self.worker._publisher = self.lanes  # type: ignore[assignment]
        self.worker._history = self.redis  # type: ignore[assignment]

    async def settle(self) -> None:
        """All that goes on by itself has gone on; nobody was shown what was erased, as far as their gateway knew."""
        await quiet()
        self.asked_in += [self.erased] * (len(self.log.requests()) - len(self.asked_in))
        for client in self.clients:
            for text in client.hear():
                shown = [self.epochs[number] for number in computed(text)]
                assert all(epoch >= self.known[client.edge] for epoch in shown), (text, shown, self.known)

    # --- clients

    async def connect(self, edge: int, cursor: str | None = None, *, before: Client | None = None) -> Client:
        client = Client(edge, self.edges[edge].connect())
        if before is not None:
            client.names, client.texts, client.cursor = dict(before.names), dict(before.texts), before.cursor
        self.clients.append(client)
        if cursor is not None:
            self._looks_up(edge)
        resume = None if cursor is None else Resume(cursor=cursor)
        await client.connection.say(SessionStart(session_id=SESSION.session_id, resume=resume))
        await self.settle()
        return client

    async def ask(self, client: Client, event_id: str) -> None:
        self._looks_up(client.edge)
        await client.connection.say(ResponseCreate(event_id=event_id, input=QUESTION))
        await self.settle()

    async def erase(self, client: Client) -> bool:
        """Whether the client was told that it is done."""
        told = len([each for each in client.connection.heard if isinstance(each, SessionDeleted)])
        await client.connection.say(SessionDelete())
        await quiet()
        done = len([each for each in client.connection.heard if isinstance(each, SessionDeleted)]) > told
        self.erased += done
        if done:
            self.known[client.edge] = self.erased
        await self.settle()
        return done

    async def cancel(self, client: Client, event_id: str) -> None:
        await client.connection.say(ResponseCancel(target_event_id=event_id))
        await self.settle()

    @property
    def all_have_heard(self) -> bool:
        return min(self.heard) == len(self.log.erasures())

    def forget_ended(self) -> None:
        """As the gateways do with what ended long ago."""
        for edge in self.edges:
            table = edge.gateway.inflight
            for entry in list(table._done.values()):
                del table._done[entry.response_id]
                table._unname(entry)

    def lose(self, client: Client) -> None:
        client.connection.lose()
        self.clients.remove(client)

    def _looks_up(self, edge: int) -> None:
        if not self.redis.away:
            self.known[edge] = self.erased

    # --- what is read from Kafka

    async def deliver(self, edge: int, records: int = 1) -> None:
        """A gateway reads on in its own partition, and in those that it follows."""
        begin = self.delivered[edge]
        replies = self.log.replies[edge][begin : begin + records]
        self.delivered[edge] += len(replies)
        self.edges[edge].gateway.replied(replies)
        self.edges[edge].follower.follow()
        await self.settle()

    async def hear(self, reader: int) -> None:
        """A gateway, or the worker (2), reads the next erasure."""
        told = self.log.erasures()[self.heard[reader] :][:1]
        self.heard[reader] += len(told)
        for each in told:
            if reader < len(self.edges):
                self.edges[reader].gateway.erased(each)
            else:
                self.worker.erase(SESSION, each.generation)
        if reader < len(self.edges) and self.heard[reader] == len(self.log.erasures()):
            self.known[reader] = self.erased
        await self.settle()

    async def stop(self) -> None:
        """The worker reads the next cancel, or of the next gateway that an answer's client has come to."""
        told = self.log.notices()[self.stopped :][:1]
        self.stopped += len(told)
        for each in told:
            if isinstance(each, Adopt):
                self.worker.adopt(each)
            elif not self.worker.cancel(each):
                self.cancels.add(each, now_unix_ms())
        await self.settle()

    async def prepare(self) -> None:
        """The worker reads the next request, and those again that had to wait."""
        records = self.log.requests()
        numbers, self.put_back = [*self.put_back, *range(self.prepared, min(self.prepared + 1, len(records)))], []
        self.prepared = min(self.prepared + 1, len(records))
        for number in numbers:
            self._accept(number, records[number])
        await self.settle()

    def _accept(self, number: int, request: ChatRequest) -> None:
        now, origin = now_unix_ms(), (("requests", 0), number)
        order = settle(request, DEFAULTS, now)
        if self.worker.leaving(request.id, origin):
            self.put_back.append(number)
            return
        self.bench.offsets.begin(*origin)
        if self.worker.repeated(order, origin):
            return
        for turn in self.redis.turns:
            if turn.generation >= (request.generation or 0):
                shown = [self.epochs[each] for each in computed(turn.assistant)]
                assert all(epoch >= self.asked_in[number] for epoch in shown), "an erased turn in a prompt"
        self.epochs.append(self.asked_in[number])
        token = f"<{len(self.epochs) - 1}>".encode()
        job = Job(
            order=order,
            bucket="short",
            sequence=Sequence(
                request_id=request.id,
                prompt_ids=[5, 6, 7],
                max_output_tokens=TOKENS,
                sampling=Sampling(),
                deadline=order.deadline,
                arrived_unix_ms=now,
                session=order.session,
                generation=order.generation,
            ),
            answer=Answer(
                request_id=request.id,
                session_id=request.session_id,
                attempt=len(self.epochs),
                token_bytes=lambda _: token,
                stops=(),
            ),
            prompt=Prompt(ids=[5, 6, 7], shared_tokens=0),
            fallback=Fallback(source="busy", text="busy", language="en"),
            origins=[origin],
        )
        self.worker.accept(job, cancelled=self.cancels.take(request, now))

    async def work(self, records: int, steps: int, *, acknowledged: bool) -> None:
        """The worker reads so many requests, computes so many steps, and hears that its ends stand in the log."""
        for _ in range(records):
            await self.prepare()
        for _ in range(steps):
            self.bench.step()
        if acknowledged:
            waiting, self.lanes.waiting = self.lanes.waiting, []
            for target, done in waiting:
                self.worker.settled(target, done)
        await self.settle()

    async def run_dry(self) -> None:
        """Until everybody has read everything and nothing is left to compute."""
        before = None
        while before != (before := (len(self.log.published), sum(map(len, self.log.replies.values())), self.put_back)):
            for reader in range(3):
                while self.heard[reader] < len(self.log.erasures()):
                    await self.hear(reader)
            while self.stopped < len(self.log.notices()):
                await self.stop()
            await self.work(len(self.log.requests()) - self.prepared + 1, 20, acknowledged=True)
            for edge in (0, 1):
                await self.deliver(edge, records=1_000_000)
