"""A conversation with a gateway over its WebSocket.

If `patience_s` is above 0, the conversation survives its socket: the client reconnects to the next of its addresses
with the session's last cursor, and its answers continue. It sends a question again, with the same `event_id`, if the
question was not confirmed or cannot be resumed. When a gateway announces that it closes, the client reconnects
immediately if it has a question, else after the announced time. It replaces a connection that is silent for 2.5 s after
a message was sent, or for two heartbeats.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

from shared.client.open_messages import Confirmation, OpenMessage, OpenQuestion, new_event_id
from shared.client.socket import Socket, address_of
from shared.client.telling import AnswerEvent, ConnectFailed, Refused
from shared.errors import ReplylineError
from shared.wire.codec import CLIENT_CODECS
from shared.wire.messages import (
    ClientInfo,
    Consent,
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffRequest,
    Language,
    Ping,
    Pong,
    Rating,
    RatingReason,
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
from shared.wire.outcome import Message, Response

Token = str | Callable[[], str | None] | None

_FIRST_WAIT_S: Final = 0.1
_LONGEST_WAIT_S: Final = 2.0
# A closing gateway disconnects all its clients together; those that have a question reconnect within this time, spread.
_AT_ONCE_S: Final = 0.2
_SILENCE_S: Final = 2.5  # a gateway confirms a question within milliseconds


class AsyncReplyline:
    """One conversation; several questions may be in flight. Use as an async context manager.

    Args:
        url: the address of a gateway.
        others: addresses of other gateways that serve the same conversations.
        codec: the WebSocket subprotocol.
        token: the client's token, or a function that is called for it at each connect.
        session_id: the conversation to continue; None to start one.
        patience_s: how long to retry a lost connection, over all addresses.
        consent: the customer's consent, sent at each connect.
    """

    def __init__(
        self,
        url: str,
        *others: str,
        codec: str = "chat.v1.msgpack",
        token: Token = None,
        session_id: str | None = None,
        patience_s: float = 30.0,
        consent: Consent | None = None,
    ) -> None:
        self._patience_s = patience_s
        self._consent = consent
        self._cursor: str | None = None
        self._cursor_s = 0.0  # when it was received
        self._away_s: float | None = None
        self._silence_s = _SILENCE_S
        self._asked = asyncio.Event()
        self._urls = (url, *others)
        self._at = 0
        self._token = token
        self._codec = CLIENT_CODECS[codec]
        self._asked_session_id = session_id
        self._socket: Socket | None = None
        self._waiting: dict[str, OpenQuestion] = {}
        self._event_of: dict[str, str] = {}
        self._told: dict[str | None, OpenMessage] = {}  # by event_id; `session.delete` has none
        self._lost_because = "not open"
        self._reading: asyncio.Task[None] | None = None
        self.session: SessionCreated | None = None  # what the gateway sent about the session: its id and its limits
        self.handoff: HandoffCreated | None = None

    async def __aenter__(self) -> Self:
        """Connect to the first gateway that answers.

        Raises:
            ConnectFailed: no gateway answers.
            SettingsError: an address is invalid.
        """
        for url in self._urls:
            address_of(url)
        for left in reversed(range(len(self._urls))):
            try:
                await self._open()
                break
            except ConnectFailed:
                if not left:
                    raise
                self._at += 1
        self._reading = asyncio.create_task(self._read())
        return self

    @property
    def _url(self) -> str:
        return self._urls[self._at % len(self._urls)]

    async def _open(self) -> None:
        """Open a socket.

        Raises:
            ConnectFailed: the gateway does not answer or refuses the session.
        """
        self._socket = await Socket.open(self._url, self._codec, self._hello())
        self.session = self._socket.session

    def _hello(self) -> SessionStart:
        return SessionStart(
            token=self._token() if callable(self._token) else self._token,
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.gather(self._reading, return_exceptions=True)
        if self._socket is not None:
            await self._socket.close()

    async def send(self, message: Message) -> None:
        """Send a message. With patience, replace the connection unless the gateway sends some frame soon."""
        assert self._socket is not None, "send before connect"
        await self._socket.send(message)
        if self._patience_s and not isinstance(message, Pong):
            self._socket.expect_frame(self._silence_s)

    async def ask(self, question: str | ResponseCreate) -> AsyncGenerator[AnswerEvent, None]:
        """Yield the events of one answer up to its `ResponseDone`.

        A second `ResponseCreated` means that the answer starts again with another text.

        Raises:
            Refused: the gateway refused the question.
            ConnectFailed: the connection was lost for good before the answer ended.
        """
        request = ResponseCreate(event_id=new_event_id(), input=question) if isinstance(question, str) else question
        waiting = self._waiting[request.event_id] = OpenQuestion(request)
        try:
            await self._ask(waiting)
            while True:
                event = await waiting.events.get()
                if isinstance(event, ReplylineError):
                    raise event
                yield event
                if isinstance(event, ResponseDone):
                    return
        finally:
            self._waiting.pop(request.event_id, None)

    async def answer(self, question: str | ResponseCreate) -> Response:
        """Return a whole answer. Raises what `ask` raises."""
        *_, done = [event async for event in self.ask(question)]
        assert isinstance(done, ResponseDone), "an answer without its end"
        return done.response

    async def _ask(self, question: OpenQuestion) -> None:
        """Send a question, or disconnect from a closing gateway. The reading task sends it again after reconnecting."""
        if self._reading is None or self._reading.done():
            question.events.put_nowait(self._lost())
            return
        self._asked.set()
        if self._away_s is not None and self._patience_s:
            self._hang_up()
            return
        await self.send(question.request)
        if question.cancelled:
            await self.cancel(question.request.event_id)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.hang_up()

    async def cancel(self, event_id: str) -> None:
        """Stop an answer. Its `ResponseDone` then has the status "cancelled", unless it had already ended."""
        if event_id in self._waiting:
            self._waiting[event_id].cancelled = True  # sent again after a reconnect
        await self.send(ResponseCancel(target_event_id=event_id))

    async def hand_off(self, language: Language = "en") -> HandoffCreated:
        """Ask for a person. Raises what `ask` raises."""
        request = HandoffRequest(event_id=new_event_id(), language=language)
        heard = await self._answer_to(request, request.event_id)
        assert isinstance(heard, HandoffCreated)
        return heard

    async def rate(
        self,
        response_id: str,
        rating: Rating | None = None,
        *,
        resolved: bool | None = None,
        reason: RatingReason | None = None,
    ) -> FeedbackRecorded:
        """Rate an answer; this replaces an earlier rating. Raises what `ask` raises."""
        event_id = new_event_id()
        rated = Feedback(event_id=event_id, response_id=response_id, rating=rating, resolved=resolved, reason=reason)
        heard = await self._answer_to(rated, event_id)
        assert isinstance(heard, FeedbackRecorded)
        return heard

    async def erase(self) -> None:
        """Erase the conversation. Only one call may run at a time. Raises what `ask` raises; after an error it may
        not be erased."""
        assert None not in self._told, "the conversation is being erased already"
        await self._answer_to(SessionDelete(), None)

    async def _answer_to(
        self, message: HandoffRequest | Feedback | SessionDelete, event_id: str | None
    ) -> Confirmation:
        told = self._told[event_id] = OpenMessage(message)
        try:
            await self._tell(told)
            return await told.answer
        finally:
            del self._told[event_id]

    async def _tell(self, told: OpenMessage) -> None:
        if self._reading is None or self._reading.done():
            raise self._lost()
        self._asked.set()
        await self.send(told.message)

    def _cared(self, event: HandoffCreated | FeedbackRecorded) -> None:
        if isinstance(event, HandoffCreated):
            self.handoff = event
        if event.event_id is not None:  # otherwise it is not the answer to a request
            self._settle(event, event.event_id)

    def _settle(self, heard: Confirmation | Refused, event_id: str | None) -> None:
        told = self._told.get(event_id)
        if told is None or told.answer.done():
            return
        if isinstance(heard, Refused):
            told.answer.set_exception(heard)
        else:
            told.answer.set_result(heard)

    def _lost(self) -> ConnectFailed:
        return ConnectFailed(f"the connection to {self._url} was lost: {self._lost_because}")

    async def _read(self) -> None:
        """Read until the connection is lost for good; then every waiting call raises `ConnectFailed`."""
        try:
            await self._read_socket()
            while await self._came_back():
                await self._read_socket()
        finally:
            for question in self._waiting.values():
                question.events.put_nowait(self._lost())
            for told in self._told.values():
                if not told.answer.done():
                    told.answer.set_exception(self._lost())

    async def _read_socket(self) -> None:
        """Read until the socket is lost."""
        assert self._socket is not None, "read before connect"
        while (message := await self._socket.receive()) is not None:
            await self._take(message)
        self._lost_because = self._socket.lost_because

    async def _came_back(self) -> bool:
        """Reconnect, and send again what the gateway does not continue by itself. Return whether that succeeded."""
        assert self._socket is not None
        if self._socket.is_final:
            return False
        loop = asyncio.get_running_loop()
        until, wait_s, told_s = loop.time() + self._patience_s, _FIRST_WAIT_S, self._away_s
        self._away_s = None
        self._silence_s *= 2  # doubled until a question is confirmed, because the gateway may be slow
        self._at += 1
        if told_s is not None and self._patience_s:
            await self._stay_away(min(told_s, self._patience_s))
            wait_s = 0.0
        while loop.time() + wait_s <= until:
            await asyncio.sleep(wait_s)
            try:
                await self._open()
            except ConnectFailed as failed:
                self._at += 1
                wait_s = max(min(max(2 * wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S), failed.retry_after_s)
                continue
            assert self.session is not None
            for question in list(self._waiting.values()):
                if not (self.session.recovered and question.telling.created is not None):
                    await self._ask(question)
                elif question.cancelled:
                    await self.cancel(question.request.event_id)
            for told in list(self._told.values()):
                await self._tell(told)
            return True
        return False

    async def _stay_away(self, told_s: float) -> None:
        """Wait the time that the gateway announced, or until there is something to send."""
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
                self._silence_s = _SILENCE_S
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
                await self._refused(message)
            case SessionDeleted():
                self._cursor = None
                self._settle(message, None)

    async def _refused(self, message: ErrorEvent) -> None:
        if message.error.code == "shutting_down" and self._patience_s:
            self._away_s = self._away_s or 0.0
            self._hang_up()  # reconnect to another gateway
            return
        refused = Refused(message.error)
        self._settle(refused, message.event_id)
        if message.event_id in self._waiting:
            self._waiting[message.event_id].events.put_nowait(refused)
        elif message.event_id is None and None not in self._told:
            await self._unreadable(refused)

    async def _unreadable(self, refused: Refused) -> None:
        """Handle an error without an event_id, which means that the gateway could not decode a message.

        Send the oldest unconfirmed question again, which is harmless; if it fails a second time, the error ends it.
        """
        question = next((each for each in self._waiting.values() if each.telling.created is None), None)
        if question is not None and question.refused:
            question.events.put_nowait(refused)
        elif question is not None:
            question.refused = True
            await self.send(question.request)

    def _hand(self, event_id: str | None, event: AnswerEvent) -> None:
        question = self._waiting.get(event_id) if event_id is not None else None
        if question is not None:
            for fresh in question.telling.take(event):
                question.events.put_nowait(fresh)
