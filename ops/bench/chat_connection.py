"""One chat connection of a load: questions out, and what comes back written into their outcomes."""

import asyncio
from collections.abc import Callable
from typing import Final

from ops.bench.outcome import Outcome
from ops.bench.wire import Wire
from ops.client import ConnectFailed
from shared.codec import CLIENT_CODECS
from shared.messages import (
    ErrorEvent,
    Message,
    Ping,
    Pong,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    SessionCreated,
    SessionStart,
)

SUBPROTOCOL: Final = "chat.v1.msgpack"
CONNECTION_LOST: Final = "connection_lost"
_CODEC: Final = CLIENT_CODECS[SUBPROTOCOL]
_HELLO_S: Final = 10.0


class ChatConnection:
    """`settled(connection, outcome)` once for each question: answered, refused, or its connection lost."""

    def __init__(self, settled: Callable[["ChatConnection", Outcome], None]) -> None:
        self._settled = settled
        self._wire: Wire | None = None
        self._by_event: dict[str, Outcome] = {}
        self._by_response: dict[str, tuple[str, Outcome]] = {}
        self._hello: asyncio.Future[SessionCreated] = asyncio.get_running_loop().create_future()
        self.lost = False

    @property
    def num_inflight(self) -> int:
        return len(self._by_event)

    async def open(self, url: str) -> SessionCreated:
        """Raises `ConnectFailed`."""
        self._wire = await Wire.connect(url, subprotocol=SUBPROTOCOL, on_frame=self._on_frame, on_lost=self._on_lost)
        self._send(SessionStart())
        try:
            async with asyncio.timeout(_HELLO_S):
                return await self._hello
        except TimeoutError:
            raise ConnectFailed(f"{url} does not answer session.start") from None

    def ask(self, request: ResponseCreate, outcome: Outcome, now: float) -> None:
        outcome.sent_s = now
        self._by_event[request.event_id] = outcome
        self._send(request)

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def _send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(_CODEC.encode(message))

    def _on_frame(self, payload: bytes, now: float) -> None:
        message = _CODEC.decode(payload)
        match message:
            case ResponseDelta():
                known = self._by_response.get(message.response_id)
                if known is not None:
                    known[1].wrote(now)
            case ResponseDone():
                self._done(message, now)
            case ResponseCreated():
                self._created(message, now)
            case ErrorEvent():
                self._refused(message)
            case SessionCreated() if not self._hello.done():
                self._hello.set_result(message)
            case Ping():
                self._send(Pong())

    def _created(self, message: ResponseCreated, now: float) -> None:
        outcome = self._by_event.get(message.event_id)
        if outcome is not None:
            outcome.created_s = now
            self._by_response[message.response_id] = (message.event_id, outcome)

    def _done(self, message: ResponseDone, now: float) -> None:
        response = message.response
        known = self._by_response.pop(response.id, None)
        if known is None:
            return
        event_id, outcome = known
        outcome.done_s = now
        outcome.source, outcome.status, outcome.reason = response.source, response.status, response.reason
        outcome.model, outcome.text = response.model, response.output_text
        outcome.input_tokens, outcome.output_tokens = response.usage.input_tokens, response.usage.output_tokens
        self._settle(event_id, outcome)

    def _refused(self, message: ErrorEvent) -> None:
        if not self._hello.done():
            self._hello.set_exception(ConnectFailed(f"the session was refused: {message.error.message}"))
            return
        outcome = self._by_event.get(message.event_id or "")
        if message.event_id is not None and outcome is not None:
            outcome.error = message.error.code
            self._settle(message.event_id, outcome)

    def _settle(self, event_id: str, outcome: Outcome) -> None:
        del self._by_event[event_id]
        self._settled(self, outcome)

    def _on_lost(self, reason: str) -> None:
        self.lost = True
        if not self._hello.done():
            self._hello.set_exception(ConnectFailed(reason))
        for event_id, outcome in list(self._by_event.items()):
            outcome.error = CONNECTION_LOST
            self._settle(event_id, outcome)
