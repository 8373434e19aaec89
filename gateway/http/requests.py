"""Read an HTTP request, send its question through the gateway, and return the answer: as one body, or as an iterator of
events.

Every HTTP interface (OpenAI's, the AI SDK's) uses `HttpRequests`: it finds out who asks, reads the body within its
limits of size and time, and hands the question to `gateway.exchange`, which treats the request as one short session.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Final, TypeVar, cast

from starlette.requests import HTTPConnection, Request
from starlette.types import Receive

from gateway.exchange.exchange import Exchange, News
from gateway.exchange.exchanges import Exchanges
from gateway.exchange.question import Asker, ClientQuestion
from gateway.frontends.client_address import ClientAddress, client_address
from gateway.http.encodings import decoded
from gateway.http.headers import Headers, bearer, deadline_ms, idempotency_key, is_retry, traceparent
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.settings.gateway import GatewaySettings
from shared.wire.outcome import Response

QuestionT = TypeVar("QuestionT")

_ADDRESS: Final = "replyline.address"
_RECEIVED: Final = "replyline.received"


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequests:
    exchanges: Exchanges
    settings: GatewaySettings

    def asker(self, connection: HTTPConnection, headers: Headers | None = None) -> Asker:
        """Return a request's sender, from its connection's address and origin, and from these headers (default: the
        connection's)."""
        sent = connection.headers
        address, now = self._address_of(connection), now_unix_ms()
        received = now if headers is not None else connection.scope.setdefault(_RECEIVED, now)
        headers = sent if headers is None else headers
        return Asker(
            address=address.charged,
            own_address=address.own,
            origins=tuple(sent.getlist("origin")),
            token=bearer(headers),
            deadline_ms=deadline_ms(headers, self.exchanges.session_limits.announced.deadline_ms),
            key=idempotency_key(headers),
            is_retry=is_retry(headers),
            traceparent=traceparent(headers),
            received_unix_ms=received,
        )

    def _address_of(self, connection: HTTPConnection) -> ClientAddress:
        """Return the client's address. It is read once for all messages on a WebSocket."""
        scope = connection.scope
        if _ADDRESS not in scope:
            peer = connection.client.host if connection.client is not None else ""
            forwarded = connection.headers.getlist("x-forwarded-for")
            scope[_ADDRESS] = client_address(peer, forwarded, self.settings.trusted_proxies)
        return cast("ClientAddress", scope[_ADDRESS])

    async def body(self, request: Request, most: int | None = None) -> bytes:
        """Read and decompress a body of at most `most` bytes (default: a frame's). Raises `ProtocolError` if it is too
        large, too slow or of an unknown encoding."""
        data, most = bytearray(), most or self.settings.max_message_bytes
        too_large = ProtocolError("body_too_large", f"a body may have at most {most} bytes")
        if int(request.headers.get("content-length", 0)) > most:
            raise too_large  # before the client is asked to continue
        try:
            async with asyncio.timeout(self.settings.hello_timeout_s):
                async for part in request.stream():
                    data += part
                    if len(data) > most:
                        raise too_large
        except TimeoutError:
            raise ProtocolError("body_too_slow", "the body did not arrive in time") from None
        return decoded(bytes(data), request.headers.getlist("content-encoding"), most)

    async def decoded(self, request: Request, decode: Callable[[bytes], QuestionT]) -> QuestionT:
        """Read and decode a body, unless its sender is refused. A refused body, and one that takes long, is charged to
        the client's address. Raises `ProtocolError`."""
        self.exchanges.check(self.asker(request))
        data = await self.body(request)
        with self.charging_decoding(request, len(data)):
            return decode(data)

    def charging_decoding(self, connection: HTTPConnection, size: int) -> AbstractContextManager[None]:
        """Charge the client's address if the block refuses a message of this size, or takes long
        (`Quotas.charging_decoding`)."""
        return self.exchanges.charging_decoding(self._address_of(connection).charged, size)

    async def ask(self, request: Request, exchange: Exchange, question: ClientQuestion) -> list[News]:
        """Ask a question (see `Exchanges.ask`). Returns nothing if the client disconnects before the first text."""
        async with watching(request.receive, exchange):
            return await self.exchanges.ask(self.asker(request), exchange, question)

    async def end(self, request: Request, exchange: Exchange, items: list[News]) -> Response | None:
        """Return the complete answer (see `Exchanges.end`)."""
        async with watching(request.receive, exchange):
            return await self.exchanges.end(exchange, items)


@asynccontextmanager
async def watching(receive: Receive, exchange: Exchange) -> AsyncIterator[None]:
    """Record a disconnect of the client while the block runs. The request's body must have been read."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        exchange.lost()

    watcher = asyncio.create_task(watch())
    try:
        yield
    finally:
        watcher.cancel()
        await asyncio.gather(watcher, return_exceptions=True)
