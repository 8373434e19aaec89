"""The WebSocket server of a gateway: accept connections within their limits, and write frames."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import NegotiationError
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.frames import CloseCode as WsCloseCode
from websockets.frames import Frame, Opcode
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from gateway.session.protocol import MessageRate
from shared.process.clock import now_unix_ms
from shared.settings.gateway import GatewaySettings
from shared.sockets.bounded import BoundedConnection, Bounds, bounded
from shared.sockets.listening import ListenAddress
from shared.sockets.open_sockets import REFUSALS, OpenSockets
from shared.wire.codec import GATEWAY_CODECS

# permessage-deflate with windows of 1 KiB, which contain about the last three frames: 16 KiB per connection by zlib's
# formula, instead of 43 with the library's defaults.
_WINDOW_BITS: Final = 10
_DEFLATE: Final = ServerPerMessageDeflateFactory(
    server_max_window_bits=_WINDOW_BITS, client_max_window_bits=_WINDOW_BITS, compress_settings={"memLevel": 3}
)

# Limit of pings, pongs and continuation frames per connection.
IDLE_FRAMES_PER_MINUTE: Final = 3_000
_MESSAGES: Final = {Opcode.TEXT, Opcode.BINARY, Opcode.CLOSE}
_GOODBYE_S: Final = 3.0

Handle = Callable[[ServerConnection], Awaitable[None]]
Respond = Callable[[ServerConnection, Request], Response | None]


class ClientConnection(BoundedConnection):
    """A client's connection. It is closed after too many frames without a message."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle_frames = MessageRate(IDLE_FRAMES_PER_MINUTE, now_unix_ms())

    def process_event(self, event: Any) -> None:
        is_idle = isinstance(event, Frame) and event.opcode not in _MESSAGES
        if is_idle and not self._idle_frames.passes(now_unix_ms()):
            self.protocol.fail(WsCloseCode.POLICY_VIOLATION, "too many frames without a message")
            self.send_data()
            self.line.close()
            return
        super().process_event(event)


def client_bounds(settings: GatewaySettings, sockets: OpenSockets) -> Bounds:
    """Return the limits of one client's connection, the same for every door."""
    return Bounds(sockets=sockets, head_s=settings.hello_timeout_s, unread_s=settings.slow_consumer_s)


async def serve_sockets(
    handle: Handle, settings: GatewaySettings, respond: Respond | None = None, sockets: OpenSockets | None = None
) -> Server:
    """Listen for WebSockets.

    Args:
        handle: called with each connection
        settings: the gateway's settings
        respond: may answer a request with a page instead of the handshake
        sockets: counts the connections

    Raises:
        ListenError: the address cannot be bound
    """
    bounds = client_bounds(settings, sockets or OpenSockets(most=settings.max_connections, spare=REFUSALS))
    # The front end closes a client that does not read with 4008. This limit is for clients whose unread replies are all
    # pongs.
    bounds = replace(bounds, unread_s=bounds.unread_s + _GOODBYE_S)
    address = ListenAddress.of_settings("gateway", settings, "port")
    with address.explained():
        return await serve(
            handle,
            **address.for_asyncio(),
            create_connection=bounded(ClientConnection, bounds),
            process_request=respond,
            select_subprotocol=_select_subprotocol,
            compression=None,
            extensions=[_DEFLATE] if settings.deflate else None,
            max_size=settings.max_message_bytes,
            max_queue=4,
            ping_interval=None,
            open_timeout=settings.hello_timeout_s,
            close_timeout=2,
            server_header=None,
            write_limit=settings.buffer_close_bytes,
        )


def send_frames(socket: ServerConnection, payloads: Iterable[bytes], *, text: bool) -> None:
    """Send one frame per message, all in one write. The socket must be open.

    The frames go through the connection's sans-I/O protocol directly into its transport, as in websockets' own
    `broadcast`, without a task, lock or await per message. The size of the transport's buffer shows whether a client is
    slow.
    """
    send = socket.protocol.send_text if text else socket.protocol.send_binary
    for payload in payloads:
        send(payload)
    socket.transport.write(b"".join(socket.protocol.data_to_send()))


def _select_subprotocol(socket: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Return the subprotocol: JSON if none is offered, otherwise the first known one. Raises `NegotiationError` (HTTP
    400) if all are unknown."""
    del socket
    if not offered:
        return None
    for name in offered:
        if name in GATEWAY_CODECS:
            return name
    raise NegotiationError(f"unknown subprotocol; known: {', '.join(GATEWAY_CODECS)}")
