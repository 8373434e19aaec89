"""Stream one answer as server-sent events."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from starlette.types import Receive, Scope, Send

from gateway.exchange.answer_events import AnswerEvents
from gateway.exchange.exchange import LazyTimer
from gateway.http.requests import HttpRequests, watching
from shared.telemetry.faults import contained

_KEEP_ALIVE: Final = b": keep-alive\n\n"
STREAM_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


@dataclass(slots=True, kw_only=True, eq=False)
class EventStream:
    """The events of one answer. The session ends with them. `delivered` is called once the answer's end has been
    written."""

    http: HttpRequests
    answer_events: AnswerEvents
    keep: bool
    headers: Mapping[str, str] = field(default_factory=lambda: STREAM_HEADERS)
    delivered: Callable[[], Awaitable[None]] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        exchange = self.answer_events.exchange
        try:
            with contained("connection", connection=exchange.session.connection_id):
                await self._send(receive, send)
        finally:
            self.http.exchanges.leave(exchange, keep=self.keep)

    async def _send(self, receive: Receive, send: Send) -> None:
        """Write the events, each time all that are queued. Stop if the client does not read."""
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        async with watching(receive, self.answer_events.exchange):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                await self._send_events(send)
            except TimeoutError:
                return
            await send({"type": "http.response.body", "body": b""})
        if self.answer_events.ended and self.delivered is not None:
            await self.delivered()

    async def _send_events(self, send: Send) -> None:
        """Write all events. Raises `TimeoutError` if the client does not read."""
        loop, most_s = asyncio.get_running_loop(), self.http.settings.slow_consumer_s
        async with asyncio.timeout(None) as sending:
            timer = LazyTimer(lambda: sending.reschedule(loop.time()))
            try:
                async for data in self.answer_events.events():
                    timer.set(most_s)
                    await send({"type": "http.response.body", "body": data or _KEEP_ALIVE, "more_body": True})
                    timer.clear()
            finally:
                timer.close()
