"""The frames of `WebSocketChatTransport`: a page's requests over one WebSocket, each with its own session.

The headers in a frame identify its sender. A malformed frame ends only the request that it names; the socket is closed
after one that names none.
"""

import asyncio
import itertools
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from starlette.websockets import WebSocket, WebSocketDisconnect

from gateway.doors.ai_sdk.bodies import ChatBody, question_of, session_of
from gateway.doors.ai_sdk.chats import Chats, Running
from gateway.doors.ai_sdk.parts import UiEncoder
from gateway.http.handlers import detail_of_raised
from gateway.http.requests import HttpRequests
from gateway.session.protocol import MessageRate
from shared.errors import ProtocolError
from shared.process.clock import now_unix_ms
from shared.telemetry.faults import contained
from shared.wire.codec import field_error
from shared.wire.lenient import UNREADABLE, lenient_json

_IDLE_S: Final = 60.0  # a page opens a new socket with its next request
# A page that replaces a resumption sends the new one within this time after the old one's end.
_REPLACED_S: Final = 1.0
_MOST_REQUESTS: Final = 64
_IDLE: Final = 1000
_BAD_FRAME: Final = 1008
_encode: Final = msgspec.json.Encoder().encode


class _Ask(ChatBody, tag="send", tag_field="type", rename="camel", kw_only=True):
    request_id: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class _Resume(msgspec.Struct, tag="resume", tag_field="type", rename="camel"):
    request_id: str
    id: str
    headers: dict[str, str] = msgspec.field(default_factory=dict)


class _Abort(msgspec.Struct, tag="abort", tag_field="type", rename="camel"):
    request_id: str


class _Named(msgspec.Struct, rename="camel"):
    """The fields by which the sender of a malformed frame finds its request."""

    request_id: str
    type: object = None


_decode: Final = lenient_json(_Ask | _Resume | _Abort)
_decode_named: Final = lenient_json(_Named)
_TYPES: Final = ("abort", "resume", "send")


class _ClosingError(Exception):
    """Raised to close the socket with this code."""


@dataclass(slots=True, eq=False)
class _Request:
    """A request in progress. `aborted`: its page no longer wants it."""

    frame: _Ask | _Resume
    size: int
    answering: "asyncio.Task[None] | None" = None
    is_told: bool = False
    aborted: bool = False

    def abort(self) -> None:
        """Stop sending. The answer is cancelled once it is known."""
        self.aborted = True
        if self.is_told and self.answering is not None:
            self.answering.cancel()

    def frame_of(self, kind: str, **fields: Any) -> bytes:
        return _frame(kind, self.frame.request_id, **fields)


@dataclass(slots=True, kw_only=True, eq=False)
class ChatSocket:
    """One socket; owned by the task that serves it."""

    socket: WebSocket
    chats: Chats
    http: HttpRequests
    _requests: dict[str, _Request] = field(default_factory=dict)
    _rate: MessageRate = field(init=False)
    _used_s: float = 0.0

    def __post_init__(self) -> None:
        self._rate = MessageRate(self.http.settings.messages_per_minute, now_unix_ms())

    async def serve(self) -> None:
        """Serve until the page disconnects or has been idle for `_IDLE_S`. Answers continue."""
        await self.socket.accept()
        self._used_s = asyncio.get_running_loop().time()
        with contained("connection", door="ai_sdk"):
            try:
                async with asyncio.TaskGroup() as tasks:
                    while True:
                        self._take(await self._received(), tasks)
            except* (TimeoutError, WebSocketDisconnect):
                pass  # it does not read, or has disconnected
            except* _ClosingError as closing:
                with suppress(WebSocketDisconnect):
                    await self.socket.close(closing.exceptions[0].args[0])

    async def _received(self) -> bytes:
        """Return the next frame. A socket is idle if no request begins, even if other frames arrive."""
        now_s = asyncio.get_running_loop().time
        while True:
            try:
                async with asyncio.timeout_at(max(self._used_s + _IDLE_S, now_s())):
                    message = await self.socket.receive()
            except TimeoutError:
                if not self._requests:
                    raise _ClosingError(_IDLE) from None
                self._used_s = now_s()
            else:
                if message["type"] == "websocket.disconnect":
                    raise WebSocketDisconnect
                return message.get("bytes") or (message.get("text") or "").encode("utf-8", "surrogatepass")

    def _take(self, data: bytes, tasks: asyncio.TaskGroup) -> None:
        """Start the request in a frame."""
        try:
            self._rate.spend(now_unix_ms())
            with self.http.charging_decoding(self.socket, len(data)):
                frame = _decode(data)
        except ProtocolError:
            raise _ClosingError(_BAD_FRAME) from None
        except UNREADABLE as error:
            tasks.create_task(self._refuse(_named_in(data), error))
            return
        if len(self._requests) >= _MOST_REQUESTS:  # it does not wait for its refusals
            raise _ClosingError(_BAD_FRAME)
        request = self._requests.get(frame.request_id)
        if isinstance(frame, _Abort):
            if request is not None:
                request.abort()
        elif request is None:
            request = self._requests[frame.request_id] = _Request(frame, len(data))
            self._used_s = asyncio.get_running_loop().time()
            request.answering = tasks.create_task(self._answer(request))

    async def _refuse(self, named: _Named, error: Exception) -> None:
        """Tell the page which of its frames was not understood. The other requests continue."""
        await self._send(_frame("error", named.request_id, errorText=_reason(named, error)))

    async def _answer(self, request: _Request) -> None:
        try:
            running = await self._begun(request)
        except Exception as error:  # noqa: BLE001 - counted and logged; this client is sent a retriable error
            await self._send(request.frame_of("error", errorText=detail_of_raised(error, "ai_sdk").message))
        else:
            await self._stream(request, running)
        finally:
            del self._requests[request.frame.request_id]

    async def _begun(self, request: _Request) -> Running | None:
        """Return the requested answer. Raises `ProtocolError`."""
        frame, most = request.frame, self.http.settings.max_inflight_per_connection
        if len(self._requests) > most:
            raise ProtocolError(
                "too_many_inflight", f"at most {most} requests may run at the same time", kind="rate_limit_error"
            )
        asker = self.http.asker(self.socket, {name.lower(): value for name, value in frame.headers.items()})
        if isinstance(frame, _Resume):
            return await self.chats.resume(asker, session_of(frame.id))
        with self.http.charging_decoding(self.socket, request.size):
            question = question_of(frame)
        return await self.chats.ask(asker, question)

    async def _stream(self, request: _Request, running: Running | None) -> None:
        if running is None:
            await self._send(request.frame_of("no-active"))
            return
        numbers = itertools.count()

        def framed(part: bytes) -> bytes:
            return request.frame_of("chunk", sequence=next(numbers), chunk=msgspec.Raw(part))

        encoder = UiEncoder(message_id=running.response_id, frame=framed, end=request.frame_of("end"))
        try:
            request.is_told = True
            if request.aborted:
                return
            await self._send(request.frame_of("start"))
            answer_events = self.chats.answer_events(running, encoder)
            async for data in answer_events.events():
                await self._send(data)
            if answer_events.ended:
                await self.chats.remove_cursor(running)
        finally:
            if request.aborted:
                self.chats.abort(running, _REPLACED_S if isinstance(request.frame, _Resume) else 0)
            else:
                self.chats.exchanges.leave(running.exchange, keep=True)

    async def _send(self, frames: bytes) -> None:
        """Send frames. Raises `TimeoutError` if the page does not read."""
        for frame in frames.splitlines():
            async with asyncio.timeout(self.http.settings.slow_consumer_s):
                await self.socket.send_text(frame.decode())


def _frame(kind: str, request_id: str, **fields: Any) -> bytes:
    return _encode({"type": kind, "requestId": request_id, **fields}) + b"\n"


def _named_in(data: bytes) -> _Named:
    """Return the request that a malformed frame names. Raises `_ClosingError` if it names none."""
    try:
        named: _Named = _decode_named(data)
    except UNREADABLE:
        raise _ClosingError(_BAD_FRAME) from None
    return named


def _reason(named: _Named, error: Exception) -> str:
    """Return one line that says what is wrong with a frame."""
    if named.type not in _TYPES:
        return f"unknown frame type {str(named.type)[:40]!r}; known: {', '.join(_TYPES)}"
    if isinstance(error, msgspec.ValidationError):
        return str(field_error(error, str(named.type)))
    return f"{named.type}: not valid JSON: {str(error)[:100]}"
