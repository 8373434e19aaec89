"""The gRPC method `Chat`: a whole session over one bidirectional stream, with the same messages as over a WebSocket. It
implements `gateway.session.connection.Connection`, by which the gateway writes to any client."""

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import msgspec

from gateway.doors.grpc.calls import Call
from gateway.doors.grpc.messages import client_message, read
from gateway.doors.grpc.replyline.v1 import replyline_pb2 as v1
from gateway.exchange.exchanges import Exchanges
from gateway.exchange.refusals import RefusalError
from gateway.request.cursor import ResumePoint, Seal
from gateway.request.entry import Item
from gateway.request.outbox import Outbox
from gateway.session.connection import refuse
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session
from shared.errors import ErrorKind, ProtocolError
from shared.process.clock import now_unix_ms
from shared.settings.gateway import GatewaySettings
from shared.telemetry import metrics
from shared.wire.messages import ClientMessage, ServerMessage, SessionClosing, SessionStart
from shared.wire.outcome import ErrorDetail

_TICK_S: Final = 1.0
_RELIEVE_S: Final = 0.05
_MESSAGE_BYTES: Final = 200  # of a message, without its text
_MAX_RECONNECT_MS: Final = 5_000


class ChatConnection:
    """One call's connection, which queues messages for the call's writer.

    Attributes:
        closing: why the gateway ends the call
        receiving: locked while a message of the client is being received
    """

    __slots__ = ("_news", "_outbox", "closing", "num_inflight", "receiving", "session")

    def __init__(self, session: Session) -> None:
        self.session = session
        self.num_inflight = 0
        self.closing: tuple[CloseCode, str] | None = None
        self.receiving = asyncio.Lock()
        self._outbox = Outbox()
        self._news = asyncio.Event()

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        self._outbox.start_session(seal, points, now_unix_ms)

    def put(self, item: ServerMessage | Item) -> None:
        self._outbox.put(item)

    def drop_answer(self, response_id: str) -> None:
        self._outbox.drop_answer(response_id)

    def flush(self) -> None:
        self._news.set()

    def close(self, code: CloseCode, reason: str) -> None:
        if self.closing is None:
            metrics.closes.labels(str(code)).inc()
            self.closing = (code, reason)
        self._news.set()

    @property
    def owes_nothing(self) -> bool:
        """Return whether no answer, reply or queued message is left for the client."""
        return not (self.num_inflight or self.session.num_replies_due or len(self._outbox))

    @property
    def waiting_bytes(self) -> int:
        """Return about how many bytes are queued."""
        return self._outbox.size_chars + _MESSAGE_BYTES * len(self._outbox)

    async def news(self) -> list[ServerMessage]:
        """Return the messages queued since the last call; empty if there are none within `_TICK_S`."""
        try:
            async with asyncio.timeout(_TICK_S):
                await self._news.wait()
        except TimeoutError:
            return []
        self._news.clear()
        return self._outbox.drain(now_unix_ms())


@dataclass(slots=True, kw_only=True)
class Chatting:
    exchanges: Exchanges
    settings: GatewaySettings
    _connections: dict[ChatConnection, None] = field(default_factory=dict)

    async def chat(self, call: Call) -> None:
        """Run a session until either side ends it. Raises `ProtocolError`."""
        exchanges, asker = self.exchanges, call.asker
        exchanges.check_memory()
        connection = ChatConnection(exchanges.new_session(asker, f"sess_{secrets.token_hex(16)}"))
        self._connections[connection] = None
        call.lost = connection.flush
        listening = asyncio.ensure_future(self._listen(call, connection, asker.token))
        listening.add_done_callback(lambda _: connection.flush())
        try:
            await self._tell(call, connection, listening)
        finally:
            async with connection.receiving:
                listening.cancel()
            await asyncio.wait([listening])
            del self._connections[connection]
            exchanges.gateway.disconnect(connection)
        if connection.closing is not None:
            raise RefusalError(_ended(*connection.closing))

    async def _listen(self, call: Call, connection: ChatConnection, token: str | None) -> None:
        if not self.exchanges.gateway.connect(connection):
            return
        while (data := await call.read()) is not None:
            async with connection.receiving:
                try:
                    message = self._decode(connection, data, token)
                except ProtocolError as error:
                    refuse(connection, error)
                    connection.flush()
                else:
                    await self.exchanges.gateway.receive(connection, message)
            while connection.waiting_bytes > self.settings.buffer_close_bytes and not call.gone:  # noqa: ASYNC110 - no event signals it
                await asyncio.sleep(_RELIEVE_S)

    def _decode(self, connection: ChatConnection, data: bytes, token: str | None) -> ClientMessage:
        """Decode a message. A `session_start` without a token gets the call's. Raises `ProtocolError`; an undecodable
        message counts against the rate too."""
        try:
            with self.exchanges.charging_decoding(connection.session.caller.address, len(data)):
                message = client_message(read(data, v1.ClientMessage))
        except ProtocolError:
            connection.session.rate.spend(now_unix_ms())
            raise
        if isinstance(message, SessionStart) and not message.token and self.exchanges.gate is not None:
            return msgspec.structs.replace(message, token=token)
        return message

    async def _tell(self, call: Call, connection: ChatConnection, listening: "asyncio.Future[None]") -> None:
        """Write the session's messages until either side ends it: the client once it has asked all and nothing of the
        gateway's is due. Raises `ProtocolError`."""
        loop = asyncio.get_running_loop()
        tick_s = loop.time() + _TICK_S
        while not call.gone:
            messages = await connection.news()
            for message in messages:
                await call.write(message)
            if connection.closing is not None and not connection.waiting_bytes:
                return
            if listening.done():
                listening.result()
                if connection.owes_nothing:
                    return
            if loop.time() >= tick_s:
                tick_s = loop.time() + _TICK_S
                await self.exchanges.gateway.tick(connection)

    def announce_shutdown(self) -> None:
        """Send every client a different time after which to reconnect."""
        for connection in self._connections:
            wait_ms = 100 + secrets.randbelow(_MAX_RECONNECT_MS)
            connection.put(SessionClosing(reason="shutdown", reconnect_after_ms=wait_ms))
            connection.flush()

    def close_all(self) -> None:
        for connection in self._connections:
            connection.close(CloseCode.SHUTDOWN, "shutdown")


def _ended(code: CloseCode, reason: str) -> ErrorDetail:
    """Return the error for the end of a session. After a code below 4500 the client may try again."""
    kind: ErrorKind = "overloaded_error" if code < CloseCode.INVALID_TOKEN else "invalid_request_error"
    if code in {CloseCode.TOKEN_EXPIRED, CloseCode.INVALID_TOKEN}:
        kind = "authentication_error"
    return ErrorDetail(type=kind, code=code.name.lower(), message=reason, retryable=kind == "overloaded_error")
