"""A WebSocket client of the protocol, for `ask`, `chat` and `bench`.

With patience it outlives its socket: it comes back with the session's last cursor, and its answers go on where they
were. What could not be resumed, or was never promised, is asked again by its `event_id`.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

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
    Resume,
    ServerMessage,
    SessionClosing,
    SessionCreated,
    SessionDelete,
    SessionDeleted,
    SessionStart,
)

AnswerEvent = ResponseCreated | ResponseDelta | ResponseDone | ErrorEvent

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
_TERMINAL: Final = (1009, *range(4500, 4600))


class ConnectFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "connect_failed"
    retriable = True


@dataclass(slots=True)
class _Question:
    """One that has no end yet. `chars` of its text were handed out."""

    request: ResponseCreate
    events: asyncio.Queue[AnswerEvent | None] = field(default_factory=asyncio.Queue)
    created: bool = False
    chars: int = 0


class ChatClient:
    """One conversation; several questions may be in flight. Use as an async context manager. For `patience_s` a lost
    connection is tried again."""

    def __init__(
        self,
        url: str,
        *,
        codec: str = "chat.v1.msgpack",
        token: str | None = None,
        session_id: str | None = None,
        patience_s: float = 0.0,
    ) -> None:
        self._patience_s = patience_s
        self._cursor: str | None = None
        self._away_s: float | None = None
        self._url = url
        self._token = token
        self._codec = CLIENT_CODECS[codec]
        self._asked_session_id = session_id
        self._socket: ClientConnection | None = None
        self._waiting: dict[str, _Question] = {}
        self._event_of: dict[str, str] = {}
        self._deleted: asyncio.Event = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self.session: SessionCreated | None = None

    async def __aenter__(self) -> Self:
        """Raises `ConnectFailed`."""
        await self._open()
        self._reading = asyncio.create_task(self._read())
        return self

    async def _open(self) -> None:
        """Raises `ConnectFailed`."""
        resume = Resume(cursor=self._cursor) if self._cursor is not None else None
        session_id = self.session.session_id if self.session is not None else self._asked_session_id
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
                SessionStart(
                    token=self._token,
                    session_id=session_id,
                    resume=resume,
                    client=ClientInfo(name="replyline", version="1"),
                )
            )
            first = self._codec.decode(await self._socket.recv())
        except (OSError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
            raise ConnectFailed(f"cannot connect to {self._url}: {error}; is it up? (replyline up)") from error
        if isinstance(first, ErrorEvent):
            raise ConnectFailed(f"{self._url} refused the session: {first.error.message}")
        if not isinstance(first, SessionCreated):
            raise ConnectFailed(f"{self._url} does not speak {self._codec.name}")
        self.session = first

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

        Raises `ConnectFailed` when the connection ends first, and for good.
        """
        question = self._waiting[request.event_id] = _Question(request)
        try:
            await self._ask(question)
            while True:
                event = await question.events.get()
                if event is None:
                    raise ConnectFailed(f"{self._url} closed the connection: {self._closed_because()}")
                yield event
                if isinstance(event, ResponseDone | ErrorEvent):
                    return
        finally:
            self._waiting.pop(request.event_id, None)

    async def _ask(self, question: _Question) -> None:
        """Where the connection is lost, whoever reads from it asks again or gives up."""
        if self._reading is None or self._reading.done():
            question.events.put_nowait(None)
            return
        with suppress(ConnectionClosed):
            await self.send(question.request)

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
        """Until the connection is lost for good; then every question hears of it."""
        try:
            await self._read_socket()
            while await self._came_back():
                await self._read_socket()
        finally:
            for question in self._waiting.values():
                question.events.put_nowait(None)

    async def _read_socket(self) -> None:
        assert self._socket is not None
        with suppress(ConnectionClosed, msgspec.DecodeError):
            async for data in self._socket:
                await self._take(self._codec.decode(data))

    async def _came_back(self) -> bool:
        """Whether there is a connection again; what it does not go on with by itself is asked again."""
        assert self._socket is not None
        if self._socket.close_code in _TERMINAL:
            return False
        loop = asyncio.get_running_loop()
        until, wait_s = loop.time() + self._patience_s, self._away_s or _FIRST_WAIT_S
        self._away_s = None
        while loop.time() + wait_s <= until:
            await asyncio.sleep(wait_s)
            try:
                await self._open()
            except ConnectFailed:
                wait_s = min(2 * wait_s, _LONGEST_WAIT_S)
                continue
            assert self.session is not None
            for question in self._waiting.values():
                if not (self.session.recovered and question.created):
                    await self._ask(question)
            return True
        return False

    async def _take(self, message: ServerMessage) -> None:
        match message:
            case Ping():
                await self.send(Pong())
            case ResponseCreated():
                self._cursor = message.cursor
                self._event_of[message.response_id] = message.event_id
                self._created(message)
            case ResponseDelta():
                self._cursor = message.cursor
                self._grown(message)
            case ResponseDone():
                self._cursor = message.cursor
                self._hand(self._event_of.pop(message.response.id, None), message)
            case SessionClosing():
                self._away_s = message.reconnect_after_ms / 1_000
            case ErrorEvent():
                self._hand(message.event_id, message)
            case SessionDeleted():
                self._cursor = None
                self._deleted.set()

    def _created(self, message: ResponseCreated) -> None:
        """Once; an answer that is told again from its beginning is no other."""
        question = self._waiting.get(message.event_id)
        if question is not None and not question.created:
            question.created = True
            question.events.put_nowait(message)

    def _grown(self, message: ResponseDelta) -> None:
        """Only what is new of it."""
        question = self._waiting.get(self._event_of.get(message.response_id, ""))
        if question is None:
            return
        fresh = message.delta[max(0, question.chars - message.offset) :]
        if fresh:
            event = msgspec.structs.replace(message, offset=question.chars, delta=fresh)
            question.chars += len(fresh)
            question.events.put_nowait(event)

    def _hand(self, event_id: str | None, event: AnswerEvent) -> None:
        question = self._waiting.get(event_id) if event_id is not None else None
        if question is not None:
            question.events.put_nowait(event)


def new_event_id() -> str:
    return f"ev_{secrets.token_hex(8)}"
