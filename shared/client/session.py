"""A WebSocket client of the protocol, for `ask`, `chat` and `bench`.

With patience it outlives its socket: it comes back with the session's last cursor, and its answers go on where they
were. What could not be resumed, or was never promised, is asked again by its `event_id`. From a gateway that goes away
it goes to another at once while it has something to ask; else it waits as long as it was told. A gateway that falls
silent for two of its heartbeats is lost, whatever TCP believes.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import Final, Self

import msgspec
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidURI
from websockets.typing import Subprotocol
from websockets.uri import WebSocketURI, parse_uri

from shared.client.telling import AnswerEvent, Telling
from shared.errors import ReplylineError, SettingsError
from shared.wire.codec import CLIENT_CODECS
from shared.wire.messages import (
    ClientInfo,
    Consent,
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffRequest,
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
from shared.wire.outcome import Message

CareEvent = HandoffCreated | FeedbackRecorded | SessionDeleted | ErrorEvent

_OPEN_S: Final = 10.0
# Beside two heartbeats: the gateway looks once a second whether one is due, and its machine may be busy.
_SLACK_S: Final = 5.0
_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
# A gateway that goes sends all its clients away together: those that have something to ask come back within this.
_AT_ONCE_S: Final = 0.2
_TERMINAL: Final = (1009, *range(4500, 4600))


class ConnectFailed(ReplylineError):  # noqa: N818 - what happened, not a kind of error
    code = "connect_failed"
    retriable = True
    retry_after_s = 0.0


@dataclass(slots=True)
class _Question:
    """One that has no end yet."""

    request: ResponseCreate
    events: asyncio.Queue[AnswerEvent | None] = field(default_factory=asyncio.Queue)
    telling: Telling = field(default_factory=Telling)


@dataclass(slots=True)
class _Told:
    """A message from the server that is no part of an answer."""

    message: HandoffRequest | Feedback | SessionDelete
    answer: asyncio.Future[CareEvent] = field(default_factory=lambda: asyncio.get_running_loop().create_future())


class AsyncReplyline:
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
        consent: Consent | None = None,
    ) -> None:
        self._patience_s = patience_s
        self._consent = consent
        self._cursor: str | None = None
        self._cursor_s = 0.0  # when it came
        self._away_s: float | None = None
        self._asked = asyncio.Event()
        self._url = url
        self._token = token
        self._codec = CLIENT_CODECS[codec]
        self._asked_session_id = session_id
        self._socket: ClientConnection | None = None
        self._waiting: dict[str, _Question] = {}
        self._event_of: dict[str, str] = {}
        self._told: dict[str | None, _Told] = {}  # by its event_id; `session.delete` has none
        self._lost_because = "not open"
        self._reading: asyncio.Task[None] | None = None
        self.session: SessionCreated | None = None
        self.handoff: HandoffCreated | None = None

    async def __aenter__(self) -> Self:
        """Connect. Raises `ConnectFailed`, and `SettingsError` for an address that is none."""
        address_of(self._url)
        await self._open()
        self._reading = asyncio.create_task(self._read())
        return self

    async def _open(self) -> None:
        """Open the socket; that of a try that fails is closed. Raises `ConnectFailed`."""
        with ExitStack() as failing:
            try:
                async with asyncio.timeout(_OPEN_S):
                    socket = await connect(
                        self._url,
                        subprotocols=[Subprotocol(self._codec.name)],
                        compression=None,
                        open_timeout=None,
                        ping_interval=None,
                        max_size=None,
                        proxy=None,
                    )
                    failing.callback(socket.transport.abort)
                    with suppress(ConnectionClosed):  # why it is closed is to be read
                        await socket.send(self._codec.encode(self._hello()), text=self._codec.is_text)
                    first = await socket.recv()
            except TimeoutError as error:
                raise ConnectFailed(f"{self._url} did not answer within {_OPEN_S:g} s; is it up?") from error
            except (OSError, InvalidURI, InvalidHandshake, ConnectionClosed) as error:
                raise ConnectFailed(f"cannot connect to {self._url}: {error}; is it up? (replyline up)") from error
            self.session = self._session_of(first)
            self._socket = socket
            failing.pop_all()

    def _hello(self) -> SessionStart:
        return SessionStart(
            token=self._token,
            session_id=self.session.session_id if self.session is not None else self._asked_session_id,
            resume=self._resume(),
            client=ClientInfo(name="replyline", version="1"),
            consent=self._consent,
        )

    def _resume(self) -> Resume | None:
        if self._cursor is None:
            return None
        return Resume(cursor=self._cursor, age_ms=int((time.monotonic() - self._cursor_s) * 1_000))

    def _keep(self, cursor: str | None) -> None:
        self._cursor, self._cursor_s = cursor, time.monotonic()

    def _session_of(self, first: bytes | str) -> SessionCreated:
        """Read the first message, `session.created`. Raises `ConnectFailed` for any other."""
        with suppress(msgspec.DecodeError):
            message = self._codec.decode(first)
            if isinstance(message, ErrorEvent):
                failed = ConnectFailed(f"{self._url} refused the session: {message.error.message}")
                failed.retry_after_s = (message.error.retry_after_ms or 0) / 1_000
                raise failed
            if isinstance(message, SessionCreated):
                return message
        raise ConnectFailed(f"{self._url} does not speak {self._codec.name}")

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
        """Yield the events of one answer, until its `response.done` or the error that refuses it. A second
        `ResponseCreated` says that the text comes otherwise, from its beginning.

        Raises `ConnectFailed` when the connection ends first, and for good.
        """
        question = self._waiting[request.event_id] = _Question(request)
        try:
            await self._ask(question)
            while True:
                event = await question.events.get()
                if event is None:
                    raise self._lost()
                yield event
                if isinstance(event, ResponseDone | ErrorEvent):
                    return
        finally:
            self._waiting.pop(request.event_id, None)

    async def _ask(self, question: _Question) -> None:
        """Send a question. Where the connection is lost, whoever reads from it asks again or gives up; a gateway that
        goes away is not asked but left."""
        if self._reading is None or self._reading.done():
            question.events.put_nowait(None)
            return
        self._asked.set()
        if self._away_s is not None and self._patience_s:
            self._hang_up()
            return
        with suppress(ConnectionClosed):
            await self.send(question.request)

    def _hang_up(self) -> None:
        """Without waiting for what is still on its way: the cursor says what has arrived."""
        if self._socket is not None:
            self._socket.transport.abort()

    async def cancel(self, event_id: str) -> None:
        await self.send(ResponseCancel(target_event_id=event_id))

    async def tell(self, message: HandoffRequest | Feedback) -> CareEvent:
        """Ask for a person, or rate an answer: what the gateway says of it. It has an `event_id`. Raises
        `ConnectFailed` when the connection ends first, and for good."""
        assert message.event_id is not None, "an answer is known by its event_id"
        return await self._answer_to(message, message.event_id)

    async def forget(self) -> ErrorEvent | None:
        """Erase the conversation, one call at a time: None when it is erased, else why it cannot be now. Raises
        `ConnectFailed` when the connection ends first, and for good."""
        assert None not in self._told, "the conversation is being erased already"
        answer = await self._answer_to(SessionDelete(), None)
        return answer if isinstance(answer, ErrorEvent) else None

    async def _answer_to(self, message: HandoffRequest | Feedback | SessionDelete, event_id: str | None) -> CareEvent:
        told = self._told[event_id] = _Told(message)
        try:
            await self._tell(told)
            return await told.answer
        finally:
            del self._told[event_id]

    async def _tell(self, told: _Told) -> None:
        if self._reading is None or self._reading.done():
            raise self._lost()
        self._asked.set()
        with suppress(ConnectionClosed):
            await self.send(told.message)

    def _cared(self, event: HandoffCreated | FeedbackRecorded) -> None:
        if isinstance(event, HandoffCreated):
            self.handoff = event
        if event.event_id is not None:  # else nobody has asked for it
            self._settle(event, event.event_id)

    def _settle(self, event: CareEvent, event_id: str | None) -> None:
        told = self._told.get(event_id)
        if told is not None and not told.answer.done():
            told.answer.set_result(event)

    def _lost(self) -> ConnectFailed:
        return ConnectFailed(f"the connection to {self._url} has ended: {self._lost_because}")

    async def _read(self) -> None:
        """Read until the connection is lost for good; then whoever waits hears of it."""
        try:
            await self._read_socket()
            while await self._came_back():
                await self._read_socket()
        finally:
            for question in self._waiting.values():
                question.events.put_nowait(None)
            for told in self._told.values():
                if not told.answer.done():
                    told.answer.set_exception(self._lost())

    async def _read_socket(self) -> None:
        """Read until the socket is closed, or nothing was heard for two heartbeats and a little."""
        assert self._socket is not None, "read before connect"
        assert self.session is not None, "read before session.created"
        silence_s = 2 * self.session.heartbeat_s + _SLACK_S
        try:
            while True:
                async with asyncio.timeout(silence_s):
                    data = await self._socket.recv()
                await self._take(self._codec.decode(data))
        except TimeoutError:
            self._lost_because = f"nothing was heard for {silence_s:g} s"
        except msgspec.DecodeError:
            self._lost_because = f"it does not speak {self._codec.name}"
        except ConnectionClosed:
            self._lost_because = f"{self._socket.close_code} {self._socket.close_reason or ''}".strip()
        self._hang_up()

    async def _came_back(self) -> bool:
        """Return whether there is a connection again; what it does not go on with by itself is asked again."""
        assert self._socket is not None
        if self._socket.close_code in _TERMINAL:
            return False
        loop = asyncio.get_running_loop()
        until, wait_s, told_s = loop.time() + self._patience_s, _FIRST_WAIT_S, self._away_s
        self._away_s = None
        if told_s is not None and self._patience_s:
            await self._stay_away(min(told_s, self._patience_s))
            wait_s = 0.0
        while loop.time() + wait_s <= until:
            await asyncio.sleep(wait_s)
            try:
                await self._open()
            except ConnectFailed as failed:
                wait_s = max(min(max(2 * wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S), failed.retry_after_s)
                continue
            assert self.session is not None
            for question in list(self._waiting.values()):
                if not (self.session.recovered and question.telling.created is not None):
                    await self._ask(question)
            for told in list(self._told.values()):
                await self._tell(told)
            return True
        return False

    async def _stay_away(self, told_s: float) -> None:
        """Wait as long as the gateway said, or until there is something to ask."""
        self._asked.clear()
        if not (self._waiting or self._told):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._asked.wait(), told_s)
        if self._waiting or self._told:
            await asyncio.sleep(_AT_ONCE_S * secrets.randbelow(1_000) / 1_000)

    async def _take(self, message: ServerMessage) -> None:
        match message:
            case Ping():
                await self.send(Pong())
            case ResponseCreated():
                self._keep(message.cursor)
                self._event_of[message.response_id] = message.event_id
                self._hand(message.event_id, message)
            case ResponseDelta():
                self._keep(message.cursor)
                self._hand(self._event_of.get(message.response_id), message)
            case ResponseDone():
                self._keep(message.cursor)
                self._hand(self._event_of.pop(message.response.id, None), message)
            case SessionClosing():
                self._away_s = message.reconnect_after_ms / 1_000
            case HandoffCreated() | FeedbackRecorded():
                self._cared(message)
            case ErrorEvent():
                self._refused(message)
            case SessionDeleted():
                self._cursor = None
                self._settle(message, None)

    def _refused(self, message: ErrorEvent) -> None:
        if message.error.code == "shutting_down" and self._patience_s:
            self._away_s = self._away_s or 0.0
            self._hang_up()  # another gateway is asked
            return
        self._settle(message, message.event_id)  # whatever else has none is waited for by nobody
        self._hand(message.event_id, message)

    def _hand(self, event_id: str | None, event: AnswerEvent) -> None:
        question = self._waiting.get(event_id) if event_id is not None else None
        if question is not None:
            for fresh in question.telling.take(event):
                question.events.put_nowait(fresh)


def address_of(url: str) -> WebSocketURI:
    """Return the parts of a WebSocket address. Raises `SettingsError` where it is none."""
    try:
        return parse_uri(url)
    except (InvalidURI, ValueError) as error:  # ValueError: a port that is no number, or too large
        wrong = error.msg if isinstance(error, InvalidURI) else error
        raise SettingsError(f"--url {url}: {wrong}; write ws://host:port/ws") from None


def new_event_id() -> str:
    return f"ev_{secrets.token_hex(8)}"
