"""Clients that lose their socket during an answer, and resume."""

import asyncio
from dataclasses import dataclass, field
from typing import Any

from tests.support.system import Service
from tests.support.wire import JSON, Answer, Client, Event, Form

TOKENS = 64
EVENTS = TOKENS + 2  # created, a delta a token, done
QUESTION = "How do I track my parcel?"
WHOLE = ("incomplete", "max_output_tokens", "model")


@dataclass(slots=True)
class Cut:
    """A client's state when its socket breaks."""

    session_id: str
    event_id: str
    form: Form
    seen: list[Event] = field(default_factory=list)

    @property
    def cursor(self) -> str | None:
        return next((event["cursor"] for event in reversed(self.seen) if "cursor" in event), None)

    @property
    def created(self) -> bool:
        return any(event["type"] == "response.created" for event in self.seen)

    @property
    def done(self) -> bool:
        return any(event["type"] == "response.done" for event in self.seen)

    async def resume(self, gateway: Service, **fields: Any) -> Answer:
        """Resume there; the messages of all connections form one answer."""
        async with Client.connect(gateway.ws, self.form, session_id=self.session_id, cursor=self.cursor) as client:
            began = client.events[0]
            assert began["recovered"] is (self.cursor is not None)
            if not self.created:
                await client.create(QUESTION, event_id=self.event_id, **{"max_output_tokens": TOKENS, **fields})
            if not self.done:
                await client.of_type("response.done")
            client.times = [*([0.0] * len(self.seen)), *client.times[1:]]
            client.events = [*self.seen, *client.events[1:]]
            assert client.count("error") == 0
            return client.check(self.event_id)

    async def move_and_lose_in(self, seconds: float, gateway: Service) -> None:
        """Resume there, and lose that socket too."""
        async with Client.connect(gateway.ws, self.form, session_id=self.session_id, cursor=self.cursor) as client:
            assert client.events[0]["recovered"] is (self.cursor is not None)
            await asyncio.sleep(seconds)
            self.seen += client.events[1:]
            client.socket.transport.abort()


async def ask_and_lose(
    gateway: Service, after: int, form: Form = JSON, *, event_id: str = "asked", **fields: Any
) -> Cut:
    """Ask, and lose the socket after this many events (0: immediately after the question is sent)."""
    async with Client.connect(gateway.ws, form) as client:
        session_id = client.session_id
        await client.create(QUESTION, event_id=event_id, **{"max_output_tokens": TOKENS, **fields})
        if after:
            await client.until(lambda event: event["type"] == "response.done" or len(client.events) > after)
        seen = client.events[1 : 1 + after]
        client.socket.transport.abort()
    return Cut(session_id, event_id, form, seen)


async def ask_and_lose_in(seconds: float, gateway: Service, form: Form) -> Cut:
    """Ask, and lose the socket after this time, wherever the answer is."""
    async with Client.connect(gateway.ws, form) as client:
        await client.create(QUESTION, event_id="asked", max_output_tokens=TOKENS)
        await asyncio.sleep(seconds)
        seen = client.events[1:]
        client.socket.transport.abort()
        return Cut(client.session_id, "asked", form, seen)
