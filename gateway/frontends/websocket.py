"""The WebSocket front end: decode frames to messages, and write messages in as few writes as possible."""

import asyncio
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from http import HTTPStatus

from websockets.asyncio.server import Server, ServerConnection
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.protocol import State

from gateway.access.identity import TokenGate
from gateway.destination.memory_watch import MemoryWatch
from gateway.frontends.client_address import charged_address, is_trusted
from gateway.frontends.paths import plain_path
from gateway.frontends.sockets import send_frames, serve_sockets
from gateway.frontends.static import StaticFiles
from gateway.request.cursor import ResumePoint, Seal
from gateway.request.entry import Item
from gateway.request.outbox import Outbox
from gateway.serving.gateway import Gateway
from gateway.session.connection import refuse, reject, send_away
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session, SessionState
from gateway.session.session_limits import SessionLimits
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.settings.gateway import GatewaySettings
from shared.settings.origins import origin_may_connect
from shared.sockets.bounded import BoundedConnection
from shared.sockets.open_sockets import REFUSALS, OpenSockets
from shared.telemetry import metrics
from shared.telemetry.faults import caught, contained
from shared.telemetry.logs import get_logger
from shared.telemetry.status import http_response
from shared.wire.codec import GATEWAY_CODECS, Codec
from shared.wire.messages import ClientMessage, ServerMessage, SessionClosing

DEFAULT_SUBPROTOCOL = "chat.v1.json"

_SWEEP_S = 1.0
_SWEEP_AT_ONCE = 200
_RELIEVE_S = 0.05
_FRAMES_AT_ONCE = 64
_MESSAGE_BYTES = 200  # of a message, without its text
_MAX_RECONNECT_MS = 5_000
# A client that does not read does not read the close frame either.
_CLOSE_S = 2.0
_RETRY_AFTER_S = 5
_TRUST_IT = (
    "a client sends X-Forwarded-For; if it is your proxy, add its network to REPLYLINE_GATEWAY__TRUSTED_PROXIES, else "
    "all clients behind it share one quota"
)

log = get_logger()


class WebSocketConnection:
    """A client's socket (`gateway.session.connection.Connection`)."""

    __slots__ = (
        "_closing",
        "_codec",
        "_congested",
        "_merge_bytes",
        "_outbox",
        "_over_since",
        "_socket",
        "num_inflight",
        "session",
    )

    def __init__(
        self,
        socket: ServerConnection,
        codec: Codec[ClientMessage],
        session: Session,
        *,
        merge_bytes: int,
        congested: dict["WebSocketConnection", None],
    ) -> None:
        """Make the connection of a socket. `congested` belongs to the front end and contains the connections whose
        clients do not read fast enough."""
        self._congested = congested
        self._merge_bytes = merge_bytes
        self._socket = socket
        self._codec = codec
        self._outbox = Outbox()
        self._over_since: float | None = None
        self._closing: asyncio.Task[None] | None = None
        self.session = session
        self.num_inflight = 0

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        self._outbox.start_session(seal, points, now_unix_ms)

    def put(self, item: ServerMessage | Item) -> None:
        self._outbox.put(item)

    def drop_answer(self, response_id: str) -> None:
        self._outbox.drop_answer(response_id)

    @property
    def buffered_bytes(self) -> int:
        """Return how many bytes the client has not read yet, in the transport and queued before it."""
        waiting = self._outbox.size_chars + _MESSAGE_BYTES * len(self._outbox)
        return self._socket.transport.get_write_buffer_size() + waiting

    def flush(self) -> None:
        """Write all queued messages in one call, unless the transport still has `merge_bytes` of earlier writes. While
        the transport has that much, the connection is congested."""
        if self._closing is not None:
            return
        socket = self._socket
        if socket.protocol.state is not State.OPEN:
            self._outbox.drain(now_unix_ms())
            return
        if not self._is_full():
            self._over_since = None
            if self._outbox:
                send_frames(
                    socket, map(self._codec.encode, self._outbox.drain(now_unix_ms())), text=self._codec.is_text
                )
            if self._outbox.merged:
                metrics.deltas_merged.inc(self._outbox.merged)
                self._outbox.merged = 0
        if self._is_full():
            self._congested[self] = None
        else:
            self._congested.pop(self, None)

    def _is_full(self) -> bool:
        return self._socket.transport.get_write_buffer_size() > self._merge_bytes

    def over_limit_for(self, limit_bytes: int, now: float) -> float:
        """Return for how many seconds the client has been over the limit without a break."""
        if self.buffered_bytes <= limit_bytes:
            self._over_since = None
            return 0.0
        self._over_since = self._over_since if self._over_since is not None else now
        return now - self._over_since

    def close(self, code: CloseCode, reason: str) -> None:
        if self._closing is None:
            metrics.closes.labels(str(code)).inc()
            # the flush may raise the same fault again
            with contained("connection", connection=self.session.connection_id):
                self.flush()
            self._closing = asyncio.create_task(self._close(code, reason))

    async def _close(self, code: int, reason: str) -> None:
        """Close the connection, and drop what is queued for the client."""
        try:
            async with asyncio.timeout(_CLOSE_S):
                await self._socket.close(code, reason)
        except TimeoutError:
            self._socket.transport.abort()

    async def closed(self) -> None:
        await self._socket.wait_closed()
        if self._closing is not None:
            await self._closing


@dataclass(slots=True, kw_only=True)
class WebSocketFrontend:
    gateway: Gateway
    settings: GatewaySettings
    session_limits: SessionLimits
    tenant: str
    gate: TokenGate | None
    memory: MemoryWatch
    files: StaticFiles
    sockets: OpenSockets = field(default_factory=lambda: OpenSockets(spare=REFUSALS))
    _connections: dict[WebSocketConnection, None] = field(default_factory=dict)  # in the order in which they connected
    _congested: dict[WebSocketConnection, None] = field(default_factory=dict)
    _disbelieved: bool = False

    async def listen(self) -> Server:
        """Listen for connections. Raises `OSError` if the address cannot be bound."""
        return await serve_sockets(self._handle, self.settings, self._respond, self.sockets)

    def _respond(self, socket: ServerConnection, request: Request) -> Response | None:
        """Return a page, or None to continue with the handshake at `/ws`."""
        path = plain_path(request.path.partition("?")[0])
        if isinstance(socket, BoundedConnection) and socket.line.is_proxied:
            socket.line.charge(self._address_of(socket))
        if path == "/ws":
            if not origin_may_connect(request.headers.get_all("Origin"), self.settings.allowed_origins):
                return http_response(HTTPStatus.FORBIDDEN, "text/plain", b"this origin may not connect\n")
            return _no_memory() if self.memory.refuses else None
        del socket
        page = self.files.get(request)
        return page or http_response(HTTPStatus.NOT_FOUND, "text/plain", b"not found; the chat is at /\n")

    async def _handle(self, socket: ServerConnection) -> None:
        codec = GATEWAY_CODECS[socket.subprotocol or DEFAULT_SUBPROTOCOL]
        session = Session(
            connection_id=f"conn_{secrets.token_hex(8)}",
            fresh_session_id=f"sess_{secrets.token_hex(16)}",
            tenant=self.tenant,
            gate=self.gate,
            limits=self.session_limits,
            now_unix_ms=now_unix_ms(),
            address=self._address_of(socket),
        )
        connection = WebSocketConnection(
            socket,
            codec,
            session,
            merge_bytes=self.settings.buffer_merge_bytes,
            congested=self._congested,
        )
        try:
            error = socket.line.refusal if isinstance(socket, BoundedConnection) else None
            if error is not None:
                reject(connection, error)
            if error is not None or not self.gateway.connect(connection):
                await connection.closed()
                return
            self._connections[connection] = None
            await self._receive(connection, socket, codec)
        except ConnectionClosed:
            pass  # the `finally` below handles every kind of end
        except Exception as error:  # noqa: BLE001 - counted and logged; this client is disconnected
            caught("connection", error, connection=session.connection_id)
            send_away(connection)
            await connection.closed()
        finally:
            self._connections.pop(connection, None)
            self._congested.pop(connection, None)
            with contained("connection", connection=session.connection_id):
                self.gateway.disconnect(connection)

    def _address_of(self, socket: ServerConnection) -> str:
        """Return the address to which the client is charged."""
        peer = str((socket.remote_address or ("",))[0])
        forwarded = socket.request.headers.get_all("X-Forwarded-For") if socket.request is not None else []
        trusted = self.settings.trusted_proxies
        if forwarded and not self._disbelieved and not is_trusted(peer, trusted):
            self._disbelieved = True
            log.warning("proxy_not_trusted", action=_TRUST_IT)
        return charged_address(peer, forwarded, trusted)

    async def _receive(
        self, connection: WebSocketConnection, socket: ServerConnection, codec: Codec[ClientMessage]
    ) -> None:
        num_frames = 0
        async for data in socket:
            num_frames += 1
            if num_frames % _FRAMES_AT_ONCE == 0:
                await asyncio.sleep(0)
            if connection.session.state is SessionState.CLOSED:
                continue
            try:
                message = self._decode(connection, codec, data)
            except ProtocolError as error:
                refuse(connection, error, error.event_id)
                connection.flush()
            else:
                await self.gateway.receive(connection, message)
            await self._wait_until_read(connection, socket)

    async def _wait_until_read(self, connection: WebSocketConnection, socket: ServerConnection) -> None:
        """Wait until the client has read its answers. No more questions are read before that."""
        most = self.settings.buffer_close_bytes
        while connection.buffered_bytes > most and socket.protocol.state is State.OPEN:  # noqa: ASYNC110 - no event for it
            await asyncio.sleep(_RELIEVE_S)

    def _decode(self, connection: WebSocketConnection, codec: Codec[ClientMessage], data: str | bytes) -> ClientMessage:
        """Decode a message; JSON may also come in a binary frame, as some clients' libraries send it. Raises
        `ProtocolError`. An undecodable message counts against the rate too, and is charged to the client's address."""
        if isinstance(data, str) and not codec.is_text:
            connection.session.rate.spend(now_unix_ms())
            raise ProtocolError("wrong_frame_type", f"{codec.name} uses binary frames")
        try:
            with self.gateway.rate_limits.quotas.charging_decoding(connection.session.caller.address, len(data)):
                return codec.decode(data)
        except ProtocolError:
            connection.session.rate.spend(now_unix_ms())
            raise

    async def sweep(self) -> None:
        """Run every connection's timers (hello, ping, pong) about once a second, a few connections at a time so that no
        delta waits."""
        while True:
            await asyncio.sleep(_SWEEP_S)
            connections = list(self._connections)
            for start in range(0, len(connections), _SWEEP_AT_ONCE):
                await asyncio.sleep(0)
                for connection in connections[start : start + _SWEEP_AT_ONCE]:
                    with contained("connection", connection=connection.session.connection_id) as ticking:
                        await self.gateway.tick(connection)
                    if ticking.error is not None:
                        send_away(connection)

    async def flush_slow(self) -> None:
        """Continue writing to slow clients. Close those that stay slow, or immediately if memory is short."""
        while True:
            await asyncio.sleep(_RELIEVE_S)
            now = asyncio.get_running_loop().time()
            for connection in list(self._congested):
                with contained("connection", connection=connection.session.connection_id) as relieving:
                    connection.flush()
                    if self._is_too_slow(connection, now):
                        connection.close(CloseCode.SLOW_CONSUMER, "the client reads too slowly")
                if relieving.error is not None:
                    send_away(connection)

    def _is_too_slow(self, connection: WebSocketConnection, now: float) -> bool:
        if self.memory.sheds and connection.buffered_bytes > self.settings.buffer_merge_bytes:
            return True
        return connection.over_limit_for(self.settings.buffer_close_bytes, now) > self.settings.slow_consumer_s

    def announce_shutdown(self) -> None:
        """Send every client a different time after which to reconnect."""
        for connection in self._connections:
            wait_ms = 100 + secrets.randbelow(_MAX_RECONNECT_MS)
            with contained("connection", connection=connection.session.connection_id):
                connection.put(SessionClosing(reason="shutdown", reconnect_after_ms=wait_ms))
                connection.flush()

    async def close_all(self) -> None:
        connections = list(self._connections)
        for connection in connections:
            connection.close(CloseCode.SHUTDOWN, "shutdown")
        await asyncio.gather(*(connection.closed() for connection in connections), return_exceptions=True)


def _no_memory() -> Response:
    metrics.refused.labels("no_memory").inc()
    wait = {"Retry-After": str(_RETRY_AFTER_S)}
    return http_response(HTTPStatus.SERVICE_UNAVAILABLE, "text/plain", b"no memory left for another client\n", wait)
