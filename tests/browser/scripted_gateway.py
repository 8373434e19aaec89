"""A gateway that a test scripts: the real wire and the real static files, scripted answers.

Messages are the Structs of `shared.wire.messages`, so a script cannot say what the wire cannot.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from shared.client.open_messages import new_event_id
from shared.client.session import AsyncReplyline
from shared.wire.codec import GATEWAY_CODECS
from shared.wire.messages import (
    ClientMessage,
    ErrorEvent,
    Feedback,
    FeedbackRecorded,
    HandoffCreated,
    HandoffRequest,
    Limits,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    SessionClosing,
    SessionCreated,
    SessionDelete,
    SessionDeleted,
    SessionRefresh,
    SessionRefreshed,
    SessionStart,
)
from shared.wire.outcome import ErrorDetail, Grounding, Reason, Replaced, Source, Status, Timings, Usage
from shared.wire.outcome import Response as Answer
from tests.browser.static_site import serve_widget

CODEC = GATEWAY_CODECS["chat.v1.json"]
LIMITS = Limits(
    max_message_bytes=65536,
    max_input_tokens=1024,
    max_output_tokens=256,
    max_inflight=4,
    messages_per_minute=100,
    first_token_ms=2000,
    deadline_ms=10000,
)
USAGE = Usage(input_tokens=212, cached_tokens=128, output_tokens=41)
TIMINGS = Timings(admission_ms=0.4, queue_ms=18.2, prefill_ms=141.0, ttft_ms=187.3, total_ms=2314.0)
M = TypeVar("M", bound=ClientMessage)


@dataclass(frozen=True, kw_only=True)
class Script:
    """The scripted answer to one question. Deltas are named by their `seq`."""

    deltas: tuple[str, ...] = ()
    source: Source = "model"
    status: Status = "completed"
    reason: Reason = "stop"
    error: ErrorDetail | None = None
    grounding: tuple[Grounding, ...] = ()
    replaced: tuple[Replaced, ...] = ()
    usage: Usage = USAGE
    timings: Timings = TIMINGS
    refusal: ErrorDetail | None = None
    """Sent as `error` in place of an answer."""
    names_refused: bool = True
    """Whether that `error` carries the question's event_id."""
    waits_to_confirm: bool = False
    """Waits for `release` before `response.created`."""
    pause_before: int | None = None
    """Waits for `release` before this delta; `len(deltas)` is before the end."""
    drop_before: int | None = None
    """Cuts the socket before this delta; the answer continues without it."""
    lose: int | None = None
    """Never sends this delta on the first socket, though a replay has it."""


@dataclass(slots=True)
class Session:
    """A conversation: all its messages, and its current listeners. A cursor is an index into `log`."""

    id: str
    log: list[ServerMessage] = field(default_factory=list)
    connection: ServerConnection | None = None
    running: dict[str, "Running"] = field(default_factory=dict)
    handoff: HandoffCreated | None = None

    async def say(self, message: ServerMessage, *, lose: bool = False) -> None:
        self.log.append(message)
        if not lose:
            await self.send(message)

    async def send(self, message: ServerMessage) -> None:
        if self.connection is not None:
            with suppress(ConnectionClosed):
                await self.connection.send(CODEC.encode(message), text=True)

    @property
    def next_cursor(self) -> str:
        return str(len(self.log) + 1)


@dataclass(slots=True)
class Running:
    """A response being written."""

    response_id: str
    released: asyncio.Event = field(default_factory=asyncio.Event)
    cancelled: bool = False
    text: str = ""
    next_seq: int = 0
    done: ResponseDone | None = None


class ScriptedGateway:
    """Serves `/`, `/widget/*` and `/ws` on a free port of 127.0.0.1."""

    def __init__(self) -> None:
        self.origin = ""
        self.scripts: dict[str, Script] = {}
        self.heartbeat_s = 25.0
        self.can_resume = True
        self.expires_at: int | None = None
        self.offers_handoff = True
        self.handoff_refusal: ErrorDetail | None = None
        """Sent in place of `handoff.created`."""
        self.farewell: SessionClosing | None = None
        """Said once, before a session begins."""
        self.no_room: ErrorDetail | None = None
        """Error that each new client receives before the socket is closed."""
        self.rating_refusal: ErrorDetail | None = None
        self.silent: set[ServerConnection] = set()
        """Open lines on which nothing is read or sent."""
        self.received: list[ClientMessage] = []
        self.sessions: dict[str, Session] = {}
        self.num_computed = 0
        self._arrived = asyncio.Condition()
        self._tasks: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def serve(self) -> AsyncIterator["ScriptedGateway"]:
        async with serve(
            self._converse,
            "127.0.0.1",
            0,
            process_request=serve_widget,
            subprotocols=[Subprotocol(CODEC.name)],
            compression=None,
            ping_interval=None,
            close_timeout=0.2,
        ) as server:
            port = server.sockets[0].getsockname()[1]
            self.origin = f"http://127.0.0.1:{port}"
            yield self
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    # --- used by tests ---------------------------------------------------------------------------------------------

    async def expect(self, kind: type[M], count: int = 1) -> list[M]:
        """Return the messages of one kind, once there are `count`."""
        async with self._arrived:
            await self._arrived.wait_for(lambda: len(self.all(kind)) >= count)
        return self.all(kind)

    def all(self, kind: type[M]) -> list[M]:
        return [message for message in self.received if isinstance(message, kind)]

    @property
    def starts(self) -> list[SessionStart]:
        """Return one `session.start` for each connection so far."""
        return self.all(SessionStart)

    def release(self) -> None:
        """Continue every paused answer."""
        for session in self.sessions.values():
            for running in session.running.values():
                running.released.set()

    async def broadcast(self, message: ServerMessage) -> None:
        for session in self.sessions.values():
            await session.send(message)

    def fall_silent(self) -> None:
        """Drop every open connection without a close, like a sleeping phone or a NAT timeout. New ones are served."""
        for session in self.sessions.values():
            if session.connection is not None:
                self.silent.add(session.connection)
                session.connection = None

    async def hang_up(self, code: int) -> None:
        for session in self.sessions.values():
            if session.connection is not None:
                await session.connection.close(code)

    async def close_for(self, code: int, reconnect_after_ms: int) -> None:
        await self.broadcast(SessionClosing(reason="shutdown", reconnect_after_ms=reconnect_after_ms))
        await self.hang_up(code)

    # --- the protocol -----------------------------------------------------------------------------------------------

    async def _converse(self, connection: ServerConnection) -> None:
        session: Session | None = None
        with suppress(ConnectionClosed):
            while True:
                frame = await connection.recv()
                if connection in self.silent:
                    continue
                message = CODEC.decode(frame)
                if isinstance(message, SessionStart) and self.no_room is not None:
                    await connection.send(CODEC.encode(ErrorEvent(error=self.no_room)), text=True)
                    await connection.close(4009)
                elif isinstance(message, SessionStart):
                    session = await self._start(connection, message)
                elif session is not None:
                    await self._handle(session, message)
                async with self._arrived:
                    self.received.append(message)
                    self._arrived.notify_all()
        if session is not None and session.connection is connection:
            session.connection = None

    async def _start(self, connection: ServerConnection, hello: SessionStart) -> Session:
        session_id = hello.session_id or f"session-{len(self.sessions) + 1}"
        session = self.sessions.setdefault(session_id, Session(session_id))
        missed = session.log[int(hello.resume.cursor) :] if hello.resume and self.can_resume else []
        session.connection = connection
        if self.farewell is not None:
            await session.send(self.farewell)
            self.farewell = None
        await session.send(
            SessionCreated(
                session_id=session_id,
                connection_id=str(connection.id),
                recovered=bool(hello.resume and self.can_resume),
                replayed=len(missed),
                limits=LIMITS,
                heartbeat_s=self.heartbeat_s,
                expires_at=self.expires_at,
                handoff=self.offers_handoff,
            )
        )
        if session.handoff is not None:
            await session.send(session.handoff)
        for event in missed:
            await session.send(event)
        return session

    async def _handle(self, session: Session, message: ClientMessage) -> None:
        if isinstance(message, ResponseCreate):
            await self._create(session, message)
        elif isinstance(message, ResponseCancel):
            for event_id, running in session.running.items():
                if message.response_id == running.response_id or message.target_event_id == event_id:
                    running.cancelled = True
                    running.released.set()
        elif isinstance(message, HandoffRequest | Feedback):
            await self._care(session, message)
        elif isinstance(message, SessionRefresh):
            await session.send(SessionRefreshed(expires_at=self.expires_at or 0))
        elif isinstance(message, SessionDelete):
            await session.send(SessionDeleted(session_id=session.id))
            del self.sessions[session.id]

    async def _care(self, session: Session, message: HandoffRequest | Feedback) -> None:
        refusal = self.handoff_refusal if isinstance(message, HandoffRequest) else self.rating_refusal
        if refusal is not None:
            await session.send(ErrorEvent(event_id=message.event_id, error=refusal))
        elif isinstance(message, HandoffRequest):
            session.handoff = HandoffCreated(
                handoff_id="handoff_0123456789abcdef", reason="requested", created_at=5, event_id=message.event_id
            )
            await session.send(session.handoff)
        else:
            recorded = FeedbackRecorded(
                response_id=message.response_id, event_id=message.event_id, rating=message.rating
            )
            await session.send(recorded)

    async def _create(self, session: Session, message: ResponseCreate) -> None:
        script = self.scripts.get(message.input, Script(deltas=(f"You asked: {message.input}",)))
        if script.refusal is not None:
            event_id = message.event_id if script.names_refused else None
            await session.send(ErrorEvent(event_id=event_id, error=script.refusal))
        elif message.event_id in session.running:
            await reattach(session, message.event_id, session.running[message.event_id])
        else:
            self.num_computed += 1
            running = session.running[message.event_id] = Running(f"response-{self.num_computed}")
            task = asyncio.create_task(answer(session, message.event_id, running, script))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)


async def reattach(session: Session, event_id: str, running: Running) -> None:
    """Send the answer from its beginning: the text so far as one delta."""
    running.next_seq = 0
    await session.send(ResponseCreated(response_id=running.response_id, event_id=event_id, bucket="short"))
    if running.text:
        await session.send(delta_of(session, running, offset=0, text=running.text))
    if running.done is not None:
        await session.send(running.done)


def delta_of(session: Session, running: Running, *, offset: int, text: str) -> ResponseDelta:
    seq, running.next_seq = running.next_seq, running.next_seq + 1
    cursor = session.next_cursor
    return ResponseDelta(response_id=running.response_id, seq=seq, offset=offset, delta=text, cursor=cursor)


async def answer(session: Session, event_id: str, running: Running, script: Script) -> None:
    """Play a script to its end, with or without listeners."""
    if script.waits_to_confirm:
        await running.released.wait()
    await session.say(ResponseCreated(response_id=running.response_id, event_id=event_id, bucket="short"))
    for seq, delta in enumerate((*script.deltas, None)):
        if seq == script.pause_before:
            await running.released.wait()
        if seq == script.drop_before and session.connection is not None:
            session.connection.transport.abort()
            session.connection = None
        if delta is None or running.cancelled:
            break
        message = delta_of(session, running, offset=len(running.text), text=delta)
        running.text += delta
        await session.say(message, lose=seq == script.lose)
    running.done = ResponseDone(response=ending(running, script, running.text), cursor=session.next_cursor)
    await session.say(running.done)


def ending(running: Running, script: Script, text: str) -> Answer:
    return Answer(
        id=running.response_id,
        status="cancelled" if running.cancelled else script.status,
        reason="client" if running.cancelled else script.reason,
        source=script.source,
        output_text=text,
        usage=script.usage,
        timings=script.timings,
        model="replyline/scripted-0.1b",
        error=script.error,
        grounding=script.grounding,
        replaced=script.replaced,
    )


# --- the terminal client

HOUR_MS = 3_600_000


def url_of(gateway: ScriptedGateway) -> str:
    return f"{gateway.origin.replace('http', 'ws')}/ws"


def client_of(gateway: ScriptedGateway) -> AsyncReplyline:
    """Return a client with more patience than any test needs."""
    return AsyncReplyline(url_of(gateway), codec="chat.v1.json", patience_s=2 * HOUR_MS)


async def ask(client: AsyncReplyline, text: str = "?") -> str:
    shown = ""
    async for event in client.ask(ResponseCreate(event_id=new_event_id(), input=text)):
        if isinstance(event, ResponseDelta):
            shown += event.delta
        if isinstance(event, ResponseDone):
            assert event.response.output_text == shown
    return shown
