"""The connection object of one HTTP or gRPC request (`gateway.session.connection.Connection`).

The gateway writes to it as to a WebSocket. It queues these messages until the code that answers the request reads them.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from gateway.request.cursor import ResumePoint, Seal
from gateway.request.entry import Item
from gateway.request.outbox import Opened, Shown
from gateway.session.effects import CloseCode
from gateway.session.protocol import Session
from shared.errors import ProtocolError
from shared.wire.failed_ends import detail_of
from shared.wire.messages import ErrorEvent, ServerMessage, SessionCreated, SessionDeleted
from shared.wire.outcome import ErrorDetail, Response


class LazyTimer:
    """A timeout that is postponed with every delta and rarely expires. `set` and `clear` only change a number: the
    event loop's timer stays, and checks the number when it fires. (Under uvloop `asyncio.timeout` costs 3.7 µs each
    time, a delta about 50.)"""

    __slots__ = ("_at_s", "_call", "_handle")

    def __init__(self, call: Callable[[], None]) -> None:
        self._call = call
        self._at_s: float | None = None
        self._handle: asyncio.TimerHandle | None = None

    def set(self, wait_s: float) -> None:
        """Call back in `wait_s` seconds, replacing any earlier time."""
        loop = asyncio.get_running_loop()
        self._at_s = loop.time() + wait_s
        if self._handle is not None and self._handle.when() > self._at_s:
            self._handle.cancel()
            self._handle = None
        if self._handle is None:
            self._handle = loop.call_at(self._at_s, self._look)

    def clear(self) -> None:
        """Cancel the callback."""
        self._at_s = None

    def close(self) -> None:
        """Cancel the callback and the event loop's timer."""
        self.clear()
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _look(self) -> None:
        self._handle = None
        if self._at_s is None:
            return
        loop = asyncio.get_running_loop()
        if self._at_s > loop.time():
            self._handle = loop.call_at(self._at_s, self._look)
            return
        self._at_s = None
        self._call()


News = Opened | Shown | Response | ErrorDetail | SessionDeleted

_AWAY: Final = ProtocolError(
    "unavailable", "this gateway cannot continue the request; try again", kind="overloaded_error", retriable=True
)
_RETRIED: Final = ProtocolError("retried", "the request was sent again and is answered there")


class Exchange:
    """The connection of one request.

    Attributes:
        created: its `session.created`
        seal: signs its cursors
        points: the answers that its client resumes
        event_id: the event of its question
        ignored: names of requested options that are not supported
    """

    __slots__ = (
        "_items",
        "_news",
        "_silence",
        "client_gone",
        "created",
        "done",
        "event_id",
        "ignored",
        "num_inflight",
        "opened",
        "points",
        "seal",
        "session",
    )

    def __init__(self, session: Session) -> None:
        self.session = session
        self.num_inflight = 0
        self.created: SessionCreated | None = None
        self.seal: Seal | None = None
        self.points: tuple[ResumePoint, ...] = ()
        self.event_id: str | None = None
        self.ignored: tuple[str, ...] = ()
        self.opened: Opened | None = None
        self.client_gone = False
        self.done = False
        self._items: list[News] = []
        self._news = asyncio.Event()
        self._silence = LazyTimer(self._news.set)

    def start_session(self, seal: Seal, points: Iterable[ResumePoint], now_unix_ms: float) -> None:
        del now_unix_ms
        self.seal, self.points = seal, tuple(points)

    def put(self, item: ServerMessage | Item) -> None:
        """Queue an item of the answer. Consecutive texts are merged."""
        if self.done:
            return
        if isinstance(item, ErrorEvent):
            self._end(item.error)
        elif isinstance(item, Shown):
            last = self._items[-1] if self._items else None
            if isinstance(last, Shown):
                self._items[-1] = Shown(last.response_id, last.offset, last.text + item.text)
            else:
                self._items.append(item)
        elif isinstance(item, Opened):
            self.opened = item
            self._items.append(item)
        elif isinstance(item, Response | SessionDeleted):
            self._end(item)
        elif isinstance(item, SessionCreated):
            self.created = item

    def drop_answer(self, response_id: str) -> None:
        del response_id
        self._fail(_RETRIED)

    def flush(self) -> None:
        if self._items or self.done:
            self._news.set()

    def close(self, code: CloseCode, reason: str) -> None:
        del code, reason
        self._fail(_AWAY)

    def lost(self) -> None:
        """Record that the client has disconnected."""
        self.client_gone = True
        self._news.set()

    @property
    def failure(self) -> ErrorDetail | None:
        """Return the error that ended the session; None if it did not end by an error."""
        last = self._items[-1] if self._items else None
        return last if isinstance(last, ErrorDetail) else None

    async def news(self, wait_s: float) -> list[News]:
        """Return the items since the last call; an empty list if no item arrives within `wait_s`, or the client has
        disconnected."""
        if not self._news.is_set():
            self._silence.set(wait_s)
            await self._news.wait()
            self._silence.clear()
        self._news.clear()
        items, self._items = self._items, []
        if self.done:
            self._silence.close()
        return items

    def _fail(self, error: ProtocolError) -> None:
        if not self.done:
            self._end(detail_of(error))
        self._news.set()

    def _end(self, end: Response | ErrorDetail | SessionDeleted) -> None:
        self._items.append(end)
        self.done = True
