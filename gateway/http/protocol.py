"""Limit each connection of the HTTP server. uvicorn's classes for HTTP and WebSocket connections are put onto a
transport that bounds the time, bytes and number of connections (`shared.sockets.bounded`)."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec
from starlette.datastructures import Headers
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode

from gateway.frontends.client_address import charged_address
from gateway.frontends.sockets import IDLE_FRAMES_PER_MINUTE
from gateway.http.statuses import error_headers, status_of
from gateway.session.protocol import MessageRate
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.sockets.bounded import HEAD_BYTES, HEAD_LINES, BoundedTransport, names_one_host
from shared.sockets.open_sockets import Network
from shared.telemetry import metrics
from shared.wire.failed_ends import detail_of

_FRAGMENTS: Final = 1_024  # per message
# An upgrade to another protocol than WebSocket, as Java's HttpClient and `curl --http2` offer with a POST. The parser
# would drop the request's body, so it gets the header under another name of the same length.
_OFFER: Final = re.compile(rb"(?i)(?<=\n)upgrade(?=:)(?!:[ \t]*websocket)")
_BEGUN: Final = re.compile(rb"(?i)(?<=\n)(?:u(?:p(?:g(?:r(?:a(?:de?)?)?)?)?)?|upgrade:[^\n]*)\Z")
_HEAD_END: Final = re.compile(rb"\n\r?\n")
_TOO_LARGE: Final = ProtocolError(
    "headers_too_large", f"a request's headers may have at most {HEAD_BYTES:,} bytes and {HEAD_LINES} lines"
)
_UNREADABLE: Final = ProtocolError("bad_request", "this is not an HTTP request")
_CODED: Final = ProtocolError("unsupported_transfer_encoding", "Transfer-Encoding: send chunked, or none")
_NO_HOST: Final = ProtocolError("bad_request", "a request needs one Host header")


class BoundedHttp(HttpToolsProtocol):
    """A connection that is counted when accepted, and closed if a request's headers are late or too large."""

    def __init__(self, *args: Any, trusted: Sequence[Network], **options: Any) -> None:
        super().__init__(*args, **options)
        self._trusted = trusted
        self._mistake = _UNREADABLE
        self._in_head, self._body_left = True, cast("int | None", None)
        self._begun_line = self._passed = b""  # what was kept, and the end of what was passed on

    @property
    def line(self) -> BoundedTransport:
        return cast("BoundedTransport", self.transport)

    def data_received(self, data: bytes) -> None:
        """Pass data on one head or body at a time, because offers are removed from heads only."""
        while data and not self.line.is_closing():
            length = len(data)
            part, data = self._without_offer(data) if self._in_head else self._of_body(data)
            self.line.head_bytes += length - len(data)
            if part:
                super().data_received(part)
            if self.line.head_bytes > HEAD_BYTES and not self.line.is_closing():
                self._refuse(_TOO_LARGE)
            if self.parser.should_upgrade():
                return

    def _without_offer(self, data: bytes) -> tuple[bytes, bytes]:
        """Return a part of a head without an offer of another protocol, and what follows the head. A line that may
        become an offer is kept for the next part."""
        whole, num_passed = self._passed + self._begun_line + data, len(self._passed)
        if (found := _HEAD_END.search(whole)) is not None:
            self._begun_line = self._passed = b""
            return _OFFER.sub(b"ignored", whole[: found.end()])[num_passed:], whole[found.end() :]
        begun = _BEGUN.search(whole)
        self._begun_line = begun[0] if begun else b""
        whole = whole.removesuffix(self._begun_line)
        self._passed = next((end for end in (b"\n\r", b"\n") if whole.endswith(end)), b"")
        return _OFFER.sub(b"ignored", whole)[num_passed:], b""

    def _of_body(self, data: bytes) -> tuple[bytes, bytes]:
        """Return a part of a body, and what follows a body of known length."""
        part = data[: self._body_left]
        if self._body_left is not None:
            self._body_left -= len(part)
        return part, data[len(part) :]

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        if len(self.headers) > HEAD_LINES:  # includes a body's trailers
            self._reject(_TOO_LARGE)

    def on_headers_complete(self) -> None:
        self.line.head_bytes, self._in_head = 0, False
        self._body_left = next((int(value) for name, value in self.headers if name == b"content-length"), None)
        if sum(len(name) + len(value) for name, value in self.headers) + len(self.url) > HEAD_BYTES:
            self._reject(_TOO_LARGE)
        hosts = [value.decode("latin-1") for name, value in self.headers if name == b"host"]
        if self.parser.get_http_version() != "1.0" and not names_one_host(hosts):
            self._reject(_NO_HOST)
        if any(name == b"transfer-encoding" and value.strip().lower() != b"chunked" for name, value in self.headers):
            self._reject(_CODED)
        if self.line.is_proxied:
            forwarded = Headers(raw=self.headers).getlist("x-forwarded-for")
            self.line.charge(charged_address(self.line.peer, forwarded, self._trusted))
        if (error := self.line.refusal) is not None:
            self._reject(error)
        if not (self.parser.should_upgrade() and self._should_upgrade()):
            self.line.end_head()
        super().on_headers_complete()
        if self.scope["http_version"] == "1.0":
            self.cycle.send = _Unframed(self.cycle)  # type: ignore[method-assign]
        self.line.fall_behind(bool(self.pipeline))

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self.line.fall_behind(bool(self.pipeline))
        if self.cycle.response_complete:
            self.line.begin_head()

    def on_body(self, body: bytes) -> None:
        self.line.head_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.line.head_bytes, self._in_head = 0, True
        super().on_message_complete()

    def _reject(self, error: ProtocolError) -> None:
        """Make the parser stop, so that `send_400_response` refuses the request with that error. Raises
        `ValueError`."""
        self._mistake = error
        raise ValueError

    def send_400_response(self, msg: str) -> None:
        del msg
        self._refuse(self._mistake)

    def _refuse(self, error: ProtocolError) -> None:
        metrics.refused.labels(error.code).inc()
        self.line.write(_response(error))
        self.line.close()


class _Unframed:
    """Send a response to a client of HTTP/1.0, which cannot read chunks: a body of unknown length ends with its
    connection."""

    def __init__(self, cycle: RequestResponseCycle) -> None:
        self._cycle = cycle
        self._has_length = False

    async def __call__(self, message: Any) -> None:
        if message["type"] == "http.response.start":
            self._has_length = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
        if not self._has_length:
            self._cycle.chunked_encoding, self._cycle.expected_content_length = False, len(message.get("body", b""))
        await RequestResponseCycle.send(self._cycle, message)


class BoundedSocket(WebSocketsSansIOProtocol):
    """A WebSocket on an HTTP connection. A malformed handshake is answered, and frames without a message are
    counted."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._idle_frames = MessageRate(IDLE_FRAMES_PER_MINUTE, now_unix_ms())

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self.handshake_initiated and self.conn.handshake_exc is not None:
            self.transport.write(b"".join(self.conn.data_to_send()) or _response(_UNREADABLE))
            self.transport.close()

    def start_keepalive(self) -> None:
        cast("BoundedTransport", self.transport).end_head()  # the handshake was answered with 101
        super().start_keepalive()

    def handle_ping(self) -> None:
        super().handle_ping()
        self._count_frame()

    def handle_pong(self, event: Any) -> None:
        super().handle_pong(event)
        self._count_frame()

    def handle_cont(self, event: Any) -> None:
        super().handle_cont(event)
        self._count_frame()

    def _count_frame(self) -> None:
        is_too_many = not self._idle_frames.passes(now_unix_ms()) or len(self.frames) > _FRAGMENTS
        if is_too_many and not self.transport.is_closing():
            self.conn.fail(CloseCode.POLICY_VIOLATION, "too many frames without a message")
            self.handle_parser_exception()


def _response(error: ProtocolError) -> bytes:
    """Return a complete response for a connection that is closed after it."""
    detail = detail_of(error)
    status, body = HTTPStatus(status_of(detail)), msgspec.json.encode({"error": detail})
    about = {"content-type": "application/json", "content-length": str(len(body)), **error_headers(detail)}
    lines = "".join(f"{name}: {value}\r\n" for name, value in about.items())
    return f"HTTP/1.1 {status.value} {status.phrase}\r\nconnection: close\r\n{lines}\r\n".encode() + body
