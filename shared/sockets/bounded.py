"""Limit what one accepted connection may use, at every port: a place, time, and unread bytes.

A `BoundedTransport` sits between the event loop's transport and a server's protocol. It counts the connection when it
is accepted, passes received data on in small parts, stops reading from a client that does not read, and closes a
connection that is too slow.
"""

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final, cast

from websockets.asyncio.server import ServerConnection
from websockets.exceptions import InvalidMessage
from websockets.http11 import Request, Response

from shared.errors import ProtocolError
from shared.sockets.open_sockets import OpenSockets

HEAD_BYTES: Final = 65_536  # of a request's line and headers together
HEAD_LINES: Final = 100
_PART_BYTES: Final = 8_192  # parsed in one iteration of the event loop
_CLOSE_S: Final = 2.0
_END: Final = b"\r\n\r\n"
_HOST: Final = re.compile(r"[^\s/?#@\\,]*")
_HTTP_1_0: Final = re.compile(rb"\A([^\r\n]* HTTP/1\.)0(?=\r?\n)")
_EMPTY: Final = b"\r\nConnection: close\r\nContent-Length: 0" + _END
_TOO_LARGE: Final = b"HTTP/1.1 431 Request Header Fields Too Large" + _EMPTY
_NO_REQUEST: Final = b"HTTP/1.1 400 Bad Request" + _EMPTY


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a connection.

    Attributes:
        head_s: seconds until a request's headers must be complete.
        unread_s: seconds that a client may leave a full write buffer unread.
    """

    sockets: OpenSockets
    head_s: float
    unread_s: float


class BoundedTransport(asyncio.Protocol):
    """One accepted connection: the event loop's protocol, and the transport of `inner`."""

    def __init__(self, bounds: Bounds, inner: Any) -> None:
        self._bounds, self._inner = bounds, inner
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._parts = bytearray()
        self._paused = self._full = self._behind = self._is_scheduled = False
        self.head_bytes = 0

    @property
    def protocol(self) -> Any:
        """Return the sans-I/O protocol of `inner`, which `websockets` compares."""
        return self._inner.protocol

    def connection_made(self, transport: Any) -> None:
        """Count the connection; abort it if there are too many."""
        self._transport, self._loop = transport, asyncio.get_running_loop()
        # bound directly, so that a delta costs no extra call
        self.write, self.write_eof, self.can_write_eof = transport.write, transport.write_eof, transport.can_write_eof
        self.is_closing, self.get_extra_info = transport.is_closing, transport.get_extra_info
        self.get_write_buffer_size = transport.get_write_buffer_size
        self.set_write_buffer_limits, self.abort = transport.set_write_buffer_limits, transport.abort
        peer = transport.get_extra_info("peername")
        self.peer = str(peer[0]) if peer else ""
        sockets = self._bounds.sockets
        if isinstance(idle := sockets.gives_way(), BoundedTransport):
            sockets.remove(idle)
            idle.abort()
        try:
            sockets.add(self, self.peer)
        except ProtocolError:
            self.abort()
        self.begin_head()
        self._inner.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._bounds.sockets.remove(self)
        self._parts.clear()
        for name in list(self._timers):
            self._stop(name)
        self._inner.connection_lost(exc)

    def _start(self, name: str, wait_s: float, end: Any) -> None:
        self._stop(name)
        self._timers[name] = self._loop.call_later(wait_s, end)

    def _stop(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()

    # Client

    @property
    def refusal(self) -> ProtocolError | None:
        """Return why this connection must be refused; None if it has a place."""
        return self._bounds.sockets.refusal(self)

    @property
    def is_proxied(self) -> bool:
        """Return whether the peer is a proxy, so that only a request's headers name the client."""
        return not self._bounds.sockets.is_limited(self.peer)

    def charge(self, address: str) -> None:
        """Count the connection as this client's."""
        with suppress(ProtocolError, KeyError):  # `refusal` is set if there is no place left
            self._bounds.sockets.assign_address(self, address)

    def begin_head(self) -> None:
        """Wait for a request's head, for at most `head_s`."""
        self._bounds.sockets.wait(self)
        self._start("head", self._bounds.head_s, self.close)

    def end_head(self) -> None:
        """Mark a request's head as complete; a WebSocket upgrade has been answered then."""
        self._bounds.sockets.serve(self)
        self._stop("head")

    # Received data

    def data_received(self, data: bytes) -> None:
        """Pass data on, one part for each iteration of the loop, while the protocol accepts it and the client reads."""
        if self._parts or self._is_blocked or len(data) > _PART_BYTES:
            self._parts += data
        else:
            self._inner.data_received(data)
        self._go_on()

    def _next_part(self) -> None:
        self._is_scheduled = False
        if self._parts and not self._is_blocked and not self.is_closing():
            part = bytes(self._parts[:_PART_BYTES])
            del self._parts[:_PART_BYTES]
            self._inner.data_received(part)
        self._go_on()

    @property
    def _is_blocked(self) -> bool:
        return self._paused or self._full or self._behind

    def _go_on(self) -> None:
        """Schedule the next part, or resume reading, unless the protocol or the client is behind."""
        if self.is_closing():
            return
        if self._parts and not self._is_blocked and not self._is_scheduled:
            self._is_scheduled = True
            self._loop.call_soon(self._next_part)
        if self._is_blocked or self._parts:
            self._transport.pause_reading()
        else:
            self._transport.resume_reading()

    def fall_behind(self, is_behind: bool) -> None:
        """Pass no data on while the protocol has requests that wait for an earlier answer."""
        self._behind = is_behind
        self._go_on()

    def eof_received(self) -> bool | None:
        return cast("bool | None", self._inner.eof_received())

    def set_protocol(self, inner: Any) -> None:
        self._parts.clear()  # no client uses the next protocol before the upgrade is answered
        self._inner = inner

    def pause_reading(self) -> None:
        self._paused = True
        self._go_on()

    def resume_reading(self) -> None:
        self._paused = False
        self._go_on()

    # Sent data

    def pause_writing(self) -> None:
        """Give the client `unread_s` to read most of a full write buffer."""
        self._full = True
        self._start("unread", self._bounds.unread_s, self.abort)
        self._go_on()
        self._inner.pause_writing()

    def resume_writing(self) -> None:
        self._full = False
        self._stop("unread")
        self._go_on()
        self._inner.resume_writing()

    def close(self) -> None:
        """Close after everything is written; abort if the client does not read it in time."""
        if self.get_write_buffer_size():
            self._start("close", _CLOSE_S, self.abort)
        self._transport.close()


def names_one_host(hosts: Sequence[str]) -> bool:
    """Return whether a request of HTTP/1.1 has the one `Host` that it must have (RFC 9112, section 3.2)."""
    return len(hosts) == 1 and _HOST.fullmatch(hosts[0]) is not None


def bounded(protocol: Any, bounds: Bounds) -> Any:
    """Return a factory of these protocols, each on a bounded transport."""
    return lambda *args, **options: BoundedTransport(bounds, protocol(*args, **options))


class BoundedConnection(ServerConnection):
    """A connection of the `websockets` library on a bounded transport; it answers one request and closes.

    Errors: 431 for headers that are too large, 400 if it is not HTTP, 405 for methods other than GET and HEAD.
    """

    _line = b""  # of the request, until it is complete
    _end = b""  # the last received bytes of the head
    _is_answered = False
    is_http_1_0 = False

    @property
    def line(self) -> BoundedTransport:
        return cast("BoundedTransport", self.transport)

    def data_received(self, data: bytes) -> None:
        """Pass data on; drop data that arrives after a request and before its answer, such as a second request."""
        has_request = self.request is not None
        if has_request:
            if self.response is not None:
                super().data_received(data)
            return
        self.line.head_bytes += len(data)
        if self.line.head_bytes > HEAD_BYTES:
            self.line.write(_TOO_LARGE)
            self.line.close()
            return
        if b"\n" not in self._line:
            data = self._line = self._line + data
            if b"\n" not in data:
                return
            data, count = _HTTP_1_0.subn(rb"\g<1>1", data)  # a health check's version, which the library rejects
            self.is_http_1_0, self._line = count > 0, b"\n"
        whole = self._end + data
        length = len(whole) if (end := whole.find(_END)) < 0 else end + len(_END)
        super().data_received(data[: length - len(self._end)])
        self._end = whole[-len(_END) + 1 :]
        if self.request is not None:
            self.line.end_head()

    def send_data(self) -> None:
        if isinstance(self.protocol.handshake_exc, InvalidMessage) and not (self._is_answered or self.request):
            self._is_answered = True
            self.line.write(_NO_REQUEST)
        super().send_data()

    async def handshake(self, process_request: Any = None, *args: Any, **options: Any) -> None:
        await super().handshake(partial(_answer, process_request), *args, **options)


def _answer(process_request: Any, socket: ServerConnection, request: Request) -> Response | None:
    if request.method not in ("GET", "HEAD"):
        refusal = socket.respond(HTTPStatus.METHOD_NOT_ALLOWED, "this port takes GET and HEAD\n")
        refusal.headers["Allow"] = "GET, HEAD"
        return refusal
    is_http_1_0 = isinstance(socket, BoundedConnection) and socket.is_http_1_0
    if not is_http_1_0 and not names_one_host(request.headers.get_all("Host")):
        return socket.respond(HTTPStatus.BAD_REQUEST, "a request needs one Host header\n")
    page = cast("Response | None", process_request and process_request(socket, request))
    if page is None and is_http_1_0:
        return socket.respond(HTTPStatus.UPGRADE_REQUIRED, "a WebSocket needs HTTP/1.1; a proxy must speak it too\n")
    return replace(page, body=b"") if page is not None and request.method == "HEAD" else page
