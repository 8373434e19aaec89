"""One chat connection of a load: it sends questions and records the answers in their outcomes."""

from collections.abc import Callable

from ops.lab.client.dialogue import CONNECTION_LOST, Dialogue
from ops.lab.client.outcome import Outcome
from shared.wire.messages import (
    ErrorEvent,
    ResponseCreate,
    ResponseCreated,
    ResponseDelta,
    ResponseDone,
    ServerMessage,
    SessionCreated,
    SessionStart,
)


class ChatConnection:
    """Calls `settled(connection, outcome)` once for each question: when it is answered or refused, or its connection is
    lost."""

    def __init__(self, settled: Callable[["ChatConnection", Outcome], None]) -> None:
        self._settled = settled
        self._dialogue = Dialogue(self._hear, self._lose)
        self._by_event: dict[str, Outcome] = {}
        self._by_response: dict[str, tuple[str, Outcome]] = {}

    @property
    def num_inflight(self) -> int:
        return len(self._by_event)

    @property
    def lost(self) -> bool:
        return self._dialogue.lost

    async def open(self, url: str, start: SessionStart = SessionStart()) -> SessionCreated:  # noqa: B008 - immutable
        """Open the connection. Raises `ConnectFailed`."""
        return await self._dialogue.open(url, start)

    def ask(self, request: ResponseCreate, outcome: Outcome, now: float) -> None:
        outcome.sent_s = now
        self._by_event[request.event_id] = outcome
        self._dialogue.send(request)

    def close(self) -> None:
        self._dialogue.close()

    def _hear(self, message: ServerMessage, now: float) -> None:
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

    def _created(self, message: ResponseCreated, now: float) -> None:
        outcome = self._by_event.get(message.event_id)
        if outcome is not None:
            outcome.created_s, outcome.eta_ms = now, message.eta_ms
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
        outcome.grounding, outcome.lane = response.grounding, response.lane
        outcome.input_tokens, outcome.output_tokens = response.usage.input_tokens, response.usage.output_tokens
        self._settle(event_id, outcome)

    def _refused(self, message: ErrorEvent) -> None:
        outcome = self._by_event.get(message.event_id or "")
        if message.event_id is not None and outcome is not None:
            outcome.error = message.error.code
            self._settle(message.event_id, outcome)

    def _settle(self, event_id: str, outcome: Outcome) -> None:
        del self._by_event[event_id]
        self._settled(self, outcome)

    def _lose(self) -> None:
        for event_id, outcome in list(self._by_event.items()):
            outcome.error = CONNECTION_LOST
            self._settle(event_id, outcome)
