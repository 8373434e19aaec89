"""A WebSocket client that uses little CPU, because it shares its cores with the system it measures.

websockets' sans-I/O protocol does the handshake and masks sent frames. Received frames are parsed here: a server's are
not masked, and the servers measured never fragment them. There is no task and no queue: a callback gets each frame's
payload and the time when it was read.
"""

import asyncio
import socket
import struct
import time
from collections.abc import Callable
from typing import Final, cast

from websockets.client import ClientProtocol
from websockets.protocol import State
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI

from shared.client.socket import address_of, no_connection
from shared.client.telling import ConnectFailed

OnFrame = Callable[[bytes, float], None]

_TEXT, _BINARY, _CLOSE, _PING, _PONG = 0x81, 0x82, 0x88, 0x89, 0x8A
_SHORT_MAX: Final = 125
_TWO_BYTES: Final = 126
_CONNECT_S: Final = 10.0


def reset_on_close(transport: asyncio.BaseTransport) -> None:
    """Make a TCP connection end with RST instead of FIN."""
    connection = transport.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


class Wire(asyncio.Protocol):
    """One connection. Calls `on_frame(payload, now_s)` for each message, and `on_lost(reason)` once when an opened
    connection has ended."""

    def __init__(self, uri: WebSocketURI, subprotocol: str, on_frame: OnFrame, on_lost: Callable[[str], None]) -> None:
        self._protocol = ClientProtocol(uri, subprotocols=[Subprotocol(subprotocol)], max_size=None)
        self._on_frame = on_frame
        self._on_lost = on_lost
        self._buffer = b""
        self._transport: asyncio.Transport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reason = "the connection ended"

    @classmethod
    async def connect(cls, url: str, *, subprotocol: str, on_frame: OnFrame, on_lost: Callable[[str], None]) -> "Wire":
        """Connect; return after the handshake. Raises `ConnectFailed`, and `SettingsError` for an invalid address."""
        uri = address_of(url)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(_CONNECT_S):
                _, wire = await loop.create_connection(
                    lambda: cls(uri, subprotocol, on_frame, on_lost), uri.host, uri.port, ssl=uri.secure or None
                )
                await wire.opened
        except (OSError, TimeoutError) as error:
            raise no_connection(url, error) from error
        return wire

    def send(self, payload: bytes) -> None:
        """Send one binary message. Does nothing if the connection has ended."""
        if self._transport is None or self._transport.is_closing():
            return
        self._protocol.send_binary(payload)
        self._transport.write(b"".join(self._protocol.data_to_send()))

    def close(self) -> None:
        """Send a close frame and release the socket."""
        if self._transport is not None and not self._transport.is_closing():
            if self._protocol.state is State.OPEN:
                self._protocol.send_close(1000)
                self._transport.write(b"".join(self._protocol.data_to_send()))
            self._transport.close()

    def cut(self) -> None:
        """Drop the socket as in a crash: data in transit is lost, and the peer gets a reset."""
        if self._transport is not None and not self._transport.is_closing():
            reset_on_close(self._transport)
            self._transport.abort()

    # --- called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's transports are not subclasses of asyncio's
        self._protocol.send_request(self._protocol.connect())
        self._transport.write(b"".join(self._protocol.data_to_send()))

    def data_received(self, data: bytes) -> None:
        now = time.monotonic()
        if self._buffer:
            data = self._buffer + data
        if not self.opened.done():
            data = self._shake_hands(data)
        self._buffer = self._cut(data, now) if data else b""

    def connection_lost(self, exc: Exception | None) -> None:
        reason = str(exc) if exc else self._reason
        if not self.opened.done():
            self.opened.set_exception(ConnectFailed(f"the handshake failed: {reason}"))
        elif not self.opened.cancelled() and self.opened.exception() is None:
            self._on_lost(reason)

    def _shake_hands(self, data: bytes) -> bytes:
        """Complete the handshake. Return the data that follows the server's response head; keep all data while the head
        is incomplete."""
        end = data.find(b"\r\n\r\n") + 4
        if end < len(b"\r\n\r\n"):
            self._buffer = data
            return b""
        self._protocol.receive_data(data[:end])
        if self._protocol.state is State.OPEN:
            self.opened.set_result(None)
        else:
            self.opened.set_exception(ConnectFailed(f"refused: {self._protocol.handshake_exc}"))
            self.close()
        return data[end:]

    def _cut(self, data: bytes, now: float) -> bytes:
        """Pass on every complete frame; return the rest."""
        at, size = 0, len(data)
        while size - at >= 2:  # noqa: PLR2004 - the size of a frame's head
            length, start = data[at + 1], at + 2
            if length > _SHORT_MAX:
                width = 2 if length == _TWO_BYTES else 8
                length, start = int.from_bytes(data[start : start + width], "big"), start + width
            if start + length > size:
                break
            payload = data[start : start + length]
            if data[at] == _BINARY or data[at] == _TEXT:
                self._on_frame(payload, now)
            else:
                self._control(data[at], payload)
            at = start + length
        return data[at:]

    def _control(self, head: int, payload: bytes) -> None:
        if head == _PONG:
            return
        if head == _PING and self._transport is not None:
            self._protocol.send_pong(payload)
            self._transport.write(b"".join(self._protocol.data_to_send()))
            return
        if head == _CLOSE:
            code = int.from_bytes(payload[:2], "big")
            self._reason = f"closed by the server: {code} {payload[2:].decode(errors='replace')}".strip()
        else:
            self._reason = f"a frame that this client does not read (0x{head:02x})"
        self.close()
