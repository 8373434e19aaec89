"""Serve WebSockets: the handshake's terms, the limits, and how frames are written."""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import NegotiationError
from websockets.extensions.permessage_deflate import ServerPerMessageDeflateFactory
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from shared.settings.gateway import GatewaySettings
from shared.wire.codec import GATEWAY_CODECS

# So many may knock before one is let in, where the system allows it (`net.core.somaxconn`). asyncio's hundred are too
# few when thousands come back at once: the rest knock again after one, three and seven seconds, or, answered by a SYN
# cookie, believe themselves let in.
_BACKLOG: Final = 4_096

# permessage-deflate with windows of 1 KiB, which hold the last three frames or so: 16 KiB a connection by zlib's own
# formula, in place of 43 by the library's defaults.
_WINDOW_BITS: Final = 10
_DEFLATE: Final = ServerPerMessageDeflateFactory(
    server_max_window_bits=_WINDOW_BITS, client_max_window_bits=_WINDOW_BITS, compress_settings={"memLevel": 3}
)

Handle = Callable[[ServerConnection], Awaitable[None]]
Respond = Callable[[ServerConnection, Request], Response | None]


class BoundedConnection(ServerConnection):
    """A connection with a bounded write buffer: over `write_limit` nothing is read from a client that does not read the
    replies to its own frames (a pong for every ping), until it has read most of them."""

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.paused:
            self.transport.pause_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.recv_messages.paused:
            self.transport.resume_reading()


async def serve_sockets(handle: Handle, settings: GatewaySettings, respond: Respond | None = None) -> Server:
    """`respond` may answer a request with a page instead of the handshake. Raises `OSError` when the address cannot be
    bound."""
    return await serve(
        handle,
        settings.host,
        settings.port,
        create_connection=BoundedConnection,
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
        backlog=_BACKLOG,
    )


def send_frames(socket: ServerConnection, payloads: Iterable[bytes], *, text: bool) -> None:
    """Send one frame a message, all in one write; the socket must be open.

    The frames go through the connection's sans-I/O protocol straight into its transport, as in websockets' own
    `broadcast`: no task, lock or await a message. The transport's buffer shows whether a client is slow."""
    send = socket.protocol.send_text if text else socket.protocol.send_binary
    for payload in payloads:
        send(payload)
    socket.transport.write(b"".join(socket.protocol.data_to_send()))


def _select_subprotocol(socket: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    """Return the subprotocol: none offered is JSON; of several the first that is known; only unknown ones are refused
    (HTTP 400)."""
    del socket
    if not offered:
        return None
    for name in offered:
        if name in GATEWAY_CODECS:
            return name
    raise NegotiationError(f"unknown subprotocol; known: {', '.join(GATEWAY_CODECS)}")
