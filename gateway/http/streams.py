"""Server-sent events of one answer, as they come."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from starlette.types import Receive, Scope, Send

from gateway.exchange.exchange import Exchange, News
from gateway.exchange.exchanges import KEEP_ALIVE_S
from gateway.http.requests import HttpRequests, watching
from gateway.request.outbox import Opened, Shown
from shared.telemetry.faults import contained
from shared.wire.failed_ends import OWN_FAULT
from shared.wire.outcome import ErrorDetail, Response

_KEEP_ALIVE: Final = b": keep-alive\n\n"
STREAM_HEADERS: Final[Mapping[str, str]] = {
    "content-type": "text/event-stream; charset=utf-8",
    "cache-control": "no-cache",
    "x-accel-buffering": "no",
}


class Teller(Protocol):
    """Says what is told of an answer in one interface's events."""

    def opened(self, response_id: str) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def ended(self, response: Response) -> bytes: ...

    def failed(self, error: ErrorDetail) -> bytes: ...

    def anew(self) -> bytes | None:
        """Return what takes back the text so far; None where the interface cannot."""


@dataclass(slots=True, kw_only=True, eq=False)
class EventStream:
    """An answer's events, from what was told `first`. The session ends with them. `delivered` is called once the end of
    the answer has been written."""

    http: HttpRequests
    exchange: Exchange
    teller: Teller
    first: list[News]
    keep: bool
    headers: Mapping[str, str] = field(default_factory=lambda: STREAM_HEADERS)
    delivered: Callable[[], Awaitable[None]] | None = None
    ended: bool = False
    chars: int = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        try:
            with contained("connection", connection=self.exchange.session.connection_id):
                await self._send(receive, send)
        finally:
            self.http.exchanges.leave(self.exchange, keep=self.keep)

    async def _send(self, receive: Receive, send: Send) -> None:
        """Write what is told, each time all that waits. A client that does not read is left alone."""
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        async with watching(receive, self.exchange):
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            try:
                async for data in self._told():
                    async with asyncio.timeout(self.http.settings.slow_consumer_s):
                        await send({"type": "http.response.body", "body": data, "more_body": True})
            except TimeoutError:
                return
            await send({"type": "http.response.body", "body": b""})
        if self.ended and self.delivered is not None:
            await self.delivered()

    async def _told(self) -> AsyncIterator[bytes]:
        items = self.first
        while True:
            for item in items:
                data, is_last = self._tell(item)
                if data:
                    yield data
                if is_last:
                    return
            items = await self.exchange.news(KEEP_ALIVE_S)
            if self.exchange.client_gone:
                return
            if not items:
                yield _KEEP_ALIVE

    def _tell(self, item: News) -> tuple[bytes, bool]:
        """Return the events of what was told, and whether they are the last."""
        match item:
            case Opened():
                if not self.chars:
                    return self.teller.opened(item.created.response_id), False
                self.chars = 0
                taken_back = self.teller.anew()
                return (self.teller.failed(OWN_FAULT), True) if taken_back is None else (taken_back, False)
            case Shown():
                self.chars += len(item.text)
                return self.teller.text(item.text), False
            case ErrorDetail():
                return self.teller.failed(item), True
            case Response():
                self.ended = True
                error = self.http.exchanges.failure_in([item]) if item.source != "busy" else None
                return (self.teller.ended(item) if error is None else self.teller.failed(error)), True
        return b"", False
