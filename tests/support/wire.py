"""A client of the WebSocket protocol as it is written down: plain dictionaries, none of the code under test."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from socket import socket as Socket  # noqa: N812 - `socket` is the WebSocket here
from typing import Any, Self

import msgpack
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

LIMIT_S = 30.0

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Form:
    """How messages are written on one subprotocol."""

    name: str
    is_text: bool
    dump: Callable[[Any], str | bytes]
    load: Callable[[Any], Any]


JSON = Form("chat.v1.json", True, json.dumps, json.loads)
MSGPACK = Form("chat.v1.msgpack", False, msgpack.packb, msgpack.unpackb)


@dataclass(frozen=True, slots=True)
class Answer:
    """The events of one response, checked: created, deltas without gap or repetition, one terminal event."""

    created: Event
    deltas: list[Event]
    done: Event
    asked_at: float
    first_text_at: float | None
    done_at: float

    @property
    def response(self) -> Event:
        response: Event = self.done["response"]
        return response

    @property
    def text(self) -> str:
        text: str = self.response["output_text"]
        return text

    @property
    def outcome(self) -> tuple[str, str, str]:
        return self.response["status"], self.response["reason"], self.response["source"]

    @property
    def took_s(self) -> float:
        return self.done_at - self.asked_at


class Client:
    """One connection. Every message is kept in `events`, in order; pings are answered unless `pong` is off.

    While `reading` is cleared nothing is read: with `sock` of small buffers, the gateway has to hold what it sends.
    """

    def __init__(self, socket: ClientConnection, form: Form, *, pong: bool) -> None:
        self.socket = socket
        self.form = form
        self.events: list[Event] = []
        self.times: list[float] = []
        self._asked: dict[str, float] = {}
        self._pong = pong
        self.reading = asyncio.Event()
        self.reading.set()
        self._news = asyncio.Condition()

    @classmethod
    @asynccontextmanager
    async def connect(
        cls,
        url: str,
        form: Form = JSON,
        *,
        start: bool = True,
        session_id: str | None = None,
        token: str | None = None,
        cursor: str | None = None,
        age_ms: int | None = None,
        talk: int | None = None,
        pong: bool = True,
        sock: Socket | None = None,
    ) -> AsyncIterator[Self]:
        async with connect(
            url,
            sock=sock,
            subprotocols=[Subprotocol(form.name)],
            compression=None,
            ping_interval=None,
            max_size=None,
            max_queue=16 if sock is None else 1,
            proxy=None,
            close_timeout=1,
        ) as socket:
            client = cls(socket, form, pong=pong)
            reading = asyncio.create_task(client._read())
            try:
                if start:
                    aged = {} if age_ms is None else {"age_ms": age_ms}
                    resume = {"cursor": cursor, **aged} if cursor is not None else None
                    named = {"session_id": session_id, "token": token, "resume": resume, "talk": talk}
                    given = {name: value for name, value in named.items() if value is not None}
                    await client.send({"type": "session.start", **given})
                    await client.of_type("session.created")
                yield client
            finally:
                reading.cancel()
                with suppress(asyncio.CancelledError):
                    await reading

    async def _read(self) -> None:
        try:
            async for data in self.socket:
                await self.reading.wait()
                event = self.form.load(data)
                if event["type"] == "ping" and self._pong:
                    await self.send({"type": "pong"})
                self.times.append(time.monotonic())
                async with self._news:
                    self.events.append(event)
                    self._news.notify_all()
        except ConnectionClosed:
            pass
        finally:
            async with self._news:
                self._news.notify_all()

    @property
    def session_id(self) -> str:
        name: str = next(event for event in self.events if event["type"] == "session.created")["session_id"]
        return name

    async def send(self, message: Any) -> None:
        await self.send_raw(self.form.dump(message))

    async def send_raw(self, data: str | bytes) -> None:
        await self.socket.send(data)

    async def create(self, text: str, *, event_id: str | None = None, **fields: Any) -> str:
        event_id = event_id or f"ev_{secrets.token_hex(6)}"
        self._asked[event_id] = time.monotonic()
        await self.send({"type": "response.create", "event_id": event_id, "input": text, **fields})
        return event_id

    async def ask(self, text: str, **fields: Any) -> Answer:
        return await self.answer(await self.create(text, **fields))

    async def until(self, wanted: Callable[[Event], bool], *, since: int = 0, limit_s: float = LIMIT_S) -> Event:
        """The first event from number `since` on that is wanted."""
        try:
            async with asyncio.timeout(limit_s), self._news:
                position = since
                while True:
                    for event in self.events[position:]:
                        if wanted(event):
                            return event
                    position = len(self.events)
                    if self.socket.close_code is not None:
                        raise AssertionError(f"closed with {self.socket.close_code}: {self.events[-5:]}")
                    await self._news.wait()
        except TimeoutError:
            raise AssertionError(f"not within {limit_s} s, but {self.events[-5:]}") from None

    async def of_type(self, name: str, *, since: int = 0, limit_s: float = LIMIT_S) -> Event:
        return await self.until(lambda event: event["type"] == name, since=since, limit_s=limit_s)

    async def created(self, event_id: str, *, since: int = 0, limit_s: float = LIMIT_S) -> Event:
        return await self.until(
            lambda event: event["type"] == "response.created" and event["event_id"] == event_id,
            since=since,
            limit_s=limit_s,
        )

    async def text_of(self, event_id: str, *, chars: int = 1, limit_s: float = LIMIT_S) -> str:
        """Return the response's id once `chars` characters of its text have arrived."""
        name: str = (await self.created(event_id, limit_s=limit_s))["response_id"]
        await self.until(
            lambda event: (
                event["type"] == "response.output_text.delta"
                and event["response_id"] == name
                and event["offset"] + len(event["delta"]) >= chars
            ),
            limit_s=limit_s,
        )
        return name

    async def error(self, *, since: int = 0, limit_s: float = LIMIT_S) -> Event:
        """The next error's detail, with the `event_id` it names."""
        event = await self.of_type("error", since=since, limit_s=limit_s)
        return {**event["error"], "event_id": event.get("event_id")}

    async def answer(self, event_id: str, *, since: int = 0, limit_s: float = LIMIT_S) -> Answer:
        """The response to that event, whole; its invariants are checked."""
        name = (await self.created(event_id, since=since, limit_s=limit_s))["response_id"]
        await self.until(
            lambda event: event["type"] == "response.done" and event["response"]["id"] == name,
            since=since,
            limit_s=limit_s,
        )
        return self.check(event_id, since=since)

    def check(self, event_id: str, *, since: int = 0) -> Answer:
        """Of the events from number `since` on: created first, seq and offset without gap, one done, whole text."""
        numbered = list(enumerate(self.events))[since:]
        (created_at,) = [n for n, e in numbered if e["type"] == "response.created" and e["event_id"] == event_id]
        name = self.events[created_at]["response_id"]
        deltas = [n for n, e in numbered if e["type"].endswith(".delta") and e["response_id"] == name]
        (done_at,) = [n for n, e in numbered if e["type"] == "response.done" and e["response"]["id"] == name]
        assert [created_at, *deltas, done_at] == sorted([created_at, *deltas, done_at])
        text = ""
        for seq, number in enumerate(deltas):
            event = self.events[number]
            assert (event["seq"], event["offset"]) == (seq, len(text))
            assert event["delta"]
            text += event["delta"]
        response = self.events[done_at]["response"]
        assert response["output_text"] == text
        return Answer(
            created=self.events[created_at],
            deltas=[self.events[number] for number in deltas],
            done=self.events[done_at],
            asked_at=self._asked.get(event_id, self.times[created_at]),
            first_text_at=self.times[deltas[0]] if deltas else None,
            done_at=self.times[done_at],
        )

    def count(self, name: str) -> int:
        return sum(event["type"] == name for event in self.events)

    async def closed(self, *, limit_s: float = LIMIT_S) -> int | None:
        """The code that the connection was closed with."""
        async with asyncio.timeout(limit_s):
            await self.socket.wait_closed()
        return self.socket.close_code


@dataclass(slots=True)
class Bystander:
    """A client that asks one question after another while something else happens; every answer must reach it."""

    client: Client
    answers: list[Answer] = field(default_factory=list)
    paused: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def run(self) -> None:
        while True:
            async with self.paused:
                answer = await self.client.ask("Where is my order?", max_output_tokens=4)
                assert answer.outcome == ("incomplete", "max_output_tokens", "model"), answer.response
                self.answers.append(answer)
            await asyncio.sleep(0.05)

    @classmethod
    @asynccontextmanager
    async def beside(cls, url: str, form: Form = JSON, *, session_id: str | None = None) -> AsyncIterator[Self]:
        """It runs while the block does, and its last answer is awaited; any that was not right fails the test."""
        async with Client.connect(url, form, session_id=session_id) as client:
            bystander = cls(client)
            running = asyncio.create_task(bystander.run())
            try:
                yield bystander
            finally:
                async with bystander.paused:
                    running.cancel()
                with suppress(asyncio.CancelledError):
                    await running
            assert client.count("error") == 0
