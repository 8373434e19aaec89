"""Who asks: clients that come back as the protocol tells them to, and services; and what each was told."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from websockets.protocol import State

from shared.kafka import Outgoing
from shared.wire.codec import CLIENT_CODECS, decode_reply, json_encode, msgpack_encode
from shared.wire.messages import (
    ChatRequest,
    ClientMessage,
    ErrorEvent,
    FeedbackRecorded,
    HandoffCreated,
    ReplyDone,
    Response,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    Resume,
    ServerMessage,
    SessionCreated,
    SessionDeleted,
    SessionStart,
)
from tests.support.fakes.whole_path import STEP_S, TOPICS, Shop, Socket
from tests.support.hostile.faults import SECRET

QUESTION = f"How do I return an item? {SECRET}"
LIMIT_S = 8.0
_MOST_COMINGS = 6
_decode = CLIENT_CODECS["chat.v1.json"].decode

Outcome = tuple[str, str, str, str]
"""Whose words, status, reason and text."""


@dataclass(repr=False)
class Told:
    """Of one question. `closed` is its end, or why it was refused."""

    asked: ResponseCreate
    response_id: str = ""
    text: str = ""
    closed: Response | str | None = None


@dataclass(repr=False)
class Shopper:
    """A client with a conversation of its own. `wrongs` is what it was told against the protocol."""

    shop: Shop
    name: str
    gateway: int = 0
    answers: dict[str, Told] = field(default_factory=dict)
    others: list[ServerMessage] = field(default_factory=list)
    wrongs: list[str] = field(default_factory=list)
    handlers: list[asyncio.Task[None]] = field(default_factory=list)
    _socket: Socket = field(default_factory=Socket)
    _num_read: int = 0
    _cursor: str | None = None
    _is_open: bool = False
    _is_recovered: bool = False

    async def come(self) -> None:
        """Connect, or come back; ask again what is open and was not gone on with."""
        assert len(self.handlers) < _MOST_COMINGS, f"{self.name} is sent away for ever"
        self._socket, self._num_read, self._is_open = Socket(), 0, False
        socket: Any = self._socket
        self.handlers.append(asyncio.create_task(self.shop.frontends[self.gateway]._handle(socket)))
        resume = None if self._cursor is None else Resume(cursor=self._cursor)
        self.say(SessionStart(session_id=self.name, resume=resume))
        await self.until(lambda: self._is_open)
        for told in self.answers.values():
            if told.closed is None and not (self._is_recovered and told.response_id):
                told.response_id = ""
                self.say(told.asked)

    def say(self, message: ClientMessage) -> None:
        self._socket.say(json_encode(message).decode())

    def lose(self) -> None:
        """Its network goes."""
        self._read()
        self._socket.lose()

    async def until(self, condition: Callable[[], object], *, limit_s: float = LIMIT_S) -> bool:
        """Wait for it, coming back where it is sent away."""
        for _ in range(int(limit_s / STEP_S)):
            self._read()
            if condition():
                return True
            if self._socket.protocol.state is not State.OPEN:
                await asyncio.sleep(STEP_S)
                await self.come()
            await asyncio.sleep(STEP_S)
        return False

    async def ask(self, name: str = "first", *, question: str = QUESTION, **given: Any) -> Told:
        told = self.answers[name] = Told(ResponseCreate(event_id=name, input=question, **given))
        self.say(told.asked)
        return told

    async def ended(self, told: Told) -> None:
        await self.until(lambda: told.closed is not None)

    async def begun(self, told: Told) -> None:
        await self.until(lambda: told.text or told.closed is not None)

    def outcome(self, name: str) -> Outcome:
        closed = self.answers[name].closed if name in self.answers else "never asked"
        if isinstance(closed, Response):
            return closed.source, closed.status, closed.reason, closed.output_text
        return "", closed or "no end", "", ""

    def heard(self, kind: type) -> bool:
        return any(isinstance(each, kind) for each in self.others)

    def _read(self) -> None:
        sent = self._socket.protocol.sent
        while self._num_read < len(sent):
            self._num_read += 1
            message = _decode(sent[self._num_read - 1])
            self._cursor = getattr(message, "cursor", None) or self._cursor
            self._hear(message)

    def _hear(self, message: ServerMessage) -> None:
        match message:
            case SessionCreated():
                self._is_open, self._is_recovered = True, message.recovered
            case ResponseCreated():
                told = self.answers[message.event_id]
                self._check(told.closed is None, "an answer opened behind its end")
                told.response_id, told.text = message.response_id, ""
            case ResponseDelta():
                told = self._of(message.response_id, "text")
                self._check(told.closed is None, "text behind the end")
                self._check(message.offset == len(told.text), "a gap in the text")
                told.text += message.delta
            case ResponseDone():
                told = self._of(message.response.id, "an end")
                self._check(told.closed is None, "a second end")
                self._check(message.response.output_text == told.text, "an end that is not the text of its deltas")
                told.closed = message.response
            case ErrorEvent(event_id=str(event_id)) if event_id in self.answers:
                self._check(self.answers[event_id].closed is None, "a refusal behind the end")
                self.answers[event_id].closed = message.error.code
            case SessionDeleted() | HandoffCreated() | FeedbackRecorded() | ErrorEvent():
                self.others.append(message)

    def _of(self, response_id: str, what: str) -> Told:
        for told in self.answers.values():
            if told.response_id == response_id:
                return told
        self.wrongs.append(f"{self.name}: {what} of an answer that was never opened")
        return Told(ResponseCreate(event_id="nobody's", input=""))

    def _check(self, right: bool, wrong: str) -> None:
        if not right:
            self.wrongs.append(f"{self.name}: {wrong}")


def request(shop: Shop, name: str, topic: str, **given: Any) -> None:
    """A service asks, and reads `chat.replies.external`."""
    fields = {"session_id": name, "input": QUESTION, "max_output_tokens": 4} | given
    value = msgpack_encode(ChatRequest(id=name, **fields))
    shop.broker.append(Outgoing(topic, value, key=name.encode()))


def services_ends(shop: Shop, name: str) -> list[ReplyDone]:
    log = shop.broker.logs[TOPICS.external_replies, 0]
    replies = [decode_reply(record.value) for record in log]
    return [reply for reply in replies if isinstance(reply, ReplyDone) and reply.request_id == name]


async def service_told(shop: Shop, name: str) -> None:
    for _ in range(int(LIMIT_S / STEP_S)):
        if services_ends(shop, name):
            return
        await asyncio.sleep(STEP_S)


def services_outcome(shop: Shop, name: str) -> Outcome:
    ends = services_ends(shop, name)
    if not ends:
        return "", "no end", "", ""
    return ends[0].source, ends[0].status, ends[0].reason, ends[0].output_text
