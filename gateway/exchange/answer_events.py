"""Write an answer while it is generated, as the stream of events that an HTTP interface defines (OpenAI's or the AI
SDK's)."""

from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Final, Protocol

from gateway.exchange.exchange import Exchange, News
from gateway.exchange.exchanges import KEEP_ALIVE_S, Exchanges
from gateway.request.outbox import Opened, Shown
from shared.wire.outcome import ErrorDetail, Response

_BEGUN_AGAIN: Final = ErrorDetail(
    type="server_error",
    code="begun_again",
    message="the answer restarted with other text, and this interface cannot replace text already sent; ask again",
    retryable=True,
)


class EventEncoder(Protocol):
    """The events of one interface."""

    def opened(self, response_id: str) -> bytes: ...

    def text(self, text: str) -> bytes: ...

    def ended(self, response: Response) -> bytes: ...

    def failed(self, error: ErrorDetail) -> bytes: ...

    def reset(self) -> bytes | None:
        """Return the event that removes the text so far; None if the interface has no such event."""


@dataclass(slots=True, kw_only=True, eq=False)
class AnswerEvents:
    """The events of one answer, starting with its `first` items. `ended`: the last event is the end of the answer."""

    exchanges: Exchanges
    exchange: Exchange
    encoder: EventEncoder
    first: list[News]
    ended: bool = False
    chars: int = 0

    async def events(self) -> AsyncIterator[bytes]:
        """Yield the events of all queued items; an empty one if no item arrives for `KEEP_ALIVE_S`."""
        items = self.first
        while True:
            for item in items:
                data, is_last = self._encode_item(item)
                if data:
                    yield data
                if is_last:
                    return
            items = await self.exchange.news(KEEP_ALIVE_S)
            if self.exchange.client_gone:
                return
            if not items:
                yield b""

    def _encode_item(self, item: News) -> tuple[bytes, bool]:
        """Return the event of an item, and whether it is the last one."""
        match item:
            case Opened():
                if not self.chars:
                    return self.encoder.opened(item.created.response_id), False
                self.chars = 0
                taken_back = self.encoder.reset()
                return (self.encoder.failed(_BEGUN_AGAIN), True) if taken_back is None else (taken_back, False)
            case Shown():
                self.chars += len(item.text)
                return self.encoder.text(item.text), False
            case ErrorDetail():
                return self.encoder.failed(item), True
            case Response():
                self.ended = True
                error = self.exchanges.failure_in([item]) if item.source != "busy" else None
                return (self.encoder.ended(item) if error is None else self.encoder.failed(error)), True
        return b"", False
