"""The webhook for Chatwoot's agent bot. A customer's message, with a valid signature, becomes a question and an errand:
a Kafka record that orders a gateway to post the answer into Chatwoot.

The webhook returns 200 when Kafka has stored both. Any gateway then carries out the errand
(`gateway.doors.chatwoot.poster`).
"""

import asyncio
from dataclasses import dataclass
from typing import Final

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.responses import Response as HttpResponse

from gateway.doors.chatwoot.events import CustomerMessage, Errand, check_signature, read_event, session_name
from gateway.exchange.question import Asker, ClientQuestion
from gateway.http.handlers import Answer, HandledPath, app_of
from gateway.http.requests import HttpRequests
from gateway.http.statuses import error_headers, status_of
from shared.errors import BrokerUnavailable, ProtocolError
from shared.kafka import Outgoing, Producer
from shared.process.clock import wire_unix_ms
from shared.wire.codec import msgpack_encode
from shared.wire.outcome import ErrorDetail

PREFIX: Final = "/channels"
# Chatwoot waits for five seconds.
_WITHIN_S: Final = 4.0
# A webhook has the customer's message several times, and an email with its HTML and what it quotes.
_MOST_BYTES: Final = 1_024 * 1_024
_MOST_LARGE: Final = 8
# Chatwoot retries only after this status and 500, three times in all.
_AGAIN: Final = 429


@dataclass(slots=True, kw_only=True)
class ChatwootDoor:
    """The door. `http` checks no tokens, because the signature authenticates the sender."""

    http: HttpRequests
    producer: Producer
    topic: str
    key: bytes
    _reading: int = 0

    def app(self) -> Starlette:
        paths: tuple[HandledPath, ...] = (("POST", "/chatwoot", self._event),)
        return app_of(paths, "chatwoot", _refusal)

    async def _event(self, request: Request) -> Answer:
        body = await self._body(request)
        check_signature(request.headers, body, self.key, wire_unix_ms() / 1_000)
        asked = read_event(body)
        if asked is None:
            return JSONResponse({"taken": False})
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._take(asked, body)
        except (BrokerUnavailable, TimeoutError) as error:
            raise ProtocolError("unavailable", "Kafka is not available; try again", retriable=True) from error
        return JSONResponse({"taken": True})

    async def _body(self, request: Request) -> bytes:
        """Read a body, of up to 1 MiB while fewer than `_MOST_LARGE` such bodies are being read: its signature can be
        checked only after that. Raises `ProtocolError`."""
        usual, length = self.http.settings.max_message_bytes, request.headers.get("content-length")
        if length is not None and int(length) <= usual and "content-encoding" not in request.headers:
            return await self.http.body(request)
        may_be_large = self._reading < _MOST_LARGE
        self._reading += 1
        try:
            return await self.http.body(request, _MOST_BYTES if may_be_large else None)
        except ProtocolError as error:
            if may_be_large or error.code != "body_too_large":
                raise
            raise ProtocolError("unavailable", "too many messages are being read; try again", retriable=True) from error
        finally:
            self._reading -= 1

    async def _take(self, asked: CustomerMessage, body: bytes) -> None:
        """Return when Kafka has the question and the errand. Raises `ProtocolError`, `BrokerUnavailable`."""
        name = session_name(asked, self.key)
        cursor, problem = None, "no_text"
        if asked.text:
            try:
                # The signature covers the message's number, but not the delivery's.
                asker = Asker(key=str(asked.message), subject=name)
                cursor = await self._ask(asker, name, ClientQuestion(body=body, input=asked.text))
            except ProtocolError as error:
                if error.retriable:
                    raise
                problem = error.code
        errand = Errand(
            account=asked.account,
            conversation=asked.conversation,
            tenant=self.http.exchanges.tenant,
            session_id=name,
            created_unix_ms=int(wire_unix_ms()),
            cursor=cursor,
            problem=None if cursor else problem,
        )
        await self.producer.publish(Outgoing(self.topic, msgpack_encode(errand), key=errand.session.record_key))

    async def _ask(self, asker: Asker, name: str, question: ClientQuestion) -> str:
        """Ask, and return the cursor of the answer's beginning. Raises `ProtocolError`."""
        async with self.http.exchanges.visit(asker, name) as exchange:
            await self.http.exchanges.ask(asker, exchange, question)
            if exchange.opened is None or exchange.seal is None:
                raise ProtocolError("unavailable", "the answer was not accepted; try again", retriable=True)
            return exchange.seal.write([exchange.opened.resume_point])


def _refusal(error: ErrorDetail) -> HttpResponse:
    told = {"error": {"code": error.code, "message": error.message}}
    return JSONResponse(told, _AGAIN if error.retryable else status_of(error), error_headers(error))
