"""A WebSocket client of the protocol, for `ask`, `chat` and `bench`."""

import asyncio
import secrets
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol

from shared.codec import CLIENT_CODECS
from shared.errors import ReplylineError
from shared.messages import (
    ClientInfo,
    ErrorEvent,
    Message,
    Ping,
    Pong,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    SessionCreated,
    SessionDelete,
    SessionDeleted,
    SessionStart,
)

AnswerEvent = ResponseCreated | ResponseDelta | ResponseDone | ErrorEvent


class ConnectFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "connect_failed"
    retriable = True


class ChatClient:
    """One connection, one conversation; several questions may be in flight. Use as an async context manager."""

    def __init__(self, url: str, *, codec: str = "chat.v1.msgpack", session_id: str | None = None) -> None:
        self._url = url
        self._codec = CLIENT_CODECS[codec]
        self._asked_session_id = session_id
        self._socket: ClientConnection | None = None
        self._waiting: dict[str, asyncio.Queue[AnswerEvent | None]] = {}
        self._event_of: dict[str, str] = {}
        self._deleted: asyncio.Event = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.session: SessionCreated | None = None

    async def __aenter__(self) -> Self:
        """Raises `ConnectFailed`."""
        try:
            self._socket = await connect(
                self._url,
                subprotocols=[Subprotocol(self._codec.name)],
                compression=None,
                ping_interval=None,
                max_size=None,
                proxy=None,
            )
            await self.send(
                SessionStart(session_id=self._asked_session_id, client=ClientInfo(name="replyline", version="1"))
            )
            first = self._codec.decode(await self._socket.recv())
        except (OSError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
            raise ConnectFailed(f"cannot connect to {self._url}: {error}; is it up? (replyline up)") from error
        if isinstance(first, ErrorEvent):
            raise ConnectFailed(f"{self._url} refused the session: {first.error.message}")
        if not isinstance(first, SessionCreated):
            raise ConnectFailed(f"{self._url} does not speak {self._codec.name}")
        self.session = first
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()

    async def send(self, message: Message) -> None:
        assert self._socket is not None, "send before connect"
        await self._socket.send(self._codec.encode(message), text=self._codec.is_text)

    async def ask(self, request: ResponseCreate) -> AsyncIterator[AnswerEvent]:
        """The events of one answer, until its `response.done` or the error that refuses it.

        Raises `ConnectFailed` when the connection ends first.
        """
        events: asyncio.Queue[AnswerEvent | None] = asyncio.Queue()
        self._waiting[request.event_id] = events
        try:
            await self.send(request)
            while True:
                event = await events.get()
                if event is None:
                    raise ConnectFailed(f"{self._url} closed the connection: {self._closed_because()}")
                yield event
                if isinstance(event, ResponseDone | ErrorEvent):
                    return
        except ConnectionClosed as error:
            raise ConnectFailed(f"{self._url} closed the connection: {error}") from error
        finally:
            self._waiting.pop(request.event_id, None)

    async def cancel(self, event_id: str) -> None:
        await self.send(ResponseCancel(target_event_id=event_id))

    async def forget(self) -> None:
        """Erase the conversation; returns when it is erased."""
        self._deleted.clear()
        await self.send(SessionDelete())
        await self._deleted.wait()

    def _closed_because(self) -> str:
        socket = self._socket
        return f"{socket.close_code} {socket.close_reason or ''}".strip() if socket else "not open"

    async def _read(self) -> None:
        assert self._socket is not None
        try:
            async for data in self._socket:
                await self._take(self._codec.decode(data))
        except (ConnectionClosed, msgspec.DecodeError):
            pass
        finally:
            for events in self._waiting.values():
                events.put_nowait(None)

    async def _take(self, message: ServerMessage) -> None:
        match message:
            case Ping():
                await self.send(Pong())
            case ResponseCreated():
                self._event_of[message.response_id] = message.event_id
                self._hand(message.event_id, message)
            case ResponseDelta():
                self._hand(self._event_of.get(message.response_id), message)
            case ResponseDone():
                self._hand(self._event_of.pop(message.response.id, None), message)
            case ErrorEvent():
                self._hand(message.event_id, message)
            case SessionDeleted():
                self._deleted.set()

    def _hand(self, event_id: str | None, event: AnswerEvent) -> None:
        waiting = self._waiting.get(event_id) if event_id is not None else None
        if waiting is not None:
            waiting.put_nowait(event)


def new_event_id() -> str:
    return f"ev_{secrets.token_hex(8)}"
