"""One session of a load's client: it opens, sends messages, and passes on the messages it receives."""

import asyncio
from collections.abc import Callable
from typing import Final

from ops.lab.client.wire import Wire
from shared.client.telling import ConnectFailed
from shared.wire.codec import CLIENT_CODECS
from shared.wire.messages import ErrorEvent, Ping, Pong, ServerMessage, SessionCreated, SessionStart
from shared.wire.outcome import Message

SUBPROTOCOL: Final = "chat.v1.msgpack"
CONNECTION_LOST: Final = "connection_lost"
_CODEC: Final = CLIENT_CODECS[SUBPROTOCOL]
_HELLO_S: Final = 10.0


class Dialogue:
    """Calls `hear(message, now_s)` for every message of an open session except pings, and `lost()` once if it breaks.
    `opened_s` is when the session opened; messages that arrive together with `session.created` are passed on before
    `open` returns."""

    def __init__(self, hear: Callable[[ServerMessage, float], None], lost: Callable[[], None]) -> None:
        self._hear = hear
        self._tell_lost = lost
        self._wire: Wire | None = None
        self._hello: asyncio.Future[SessionCreated] = asyncio.get_running_loop().create_future()
        self.lost = False
        self.opened_s: float | None = None

    async def open(self, url: str, start: SessionStart = SessionStart()) -> SessionCreated:  # noqa: B008 - immutable
        """Open the session. Raises `ConnectFailed`."""
        self._wire = await Wire.connect(url, subprotocol=SUBPROTOCOL, on_frame=self._on_frame, on_lost=self._on_lost)
        self.send(start)
        try:
            async with asyncio.timeout(_HELLO_S):
                return await self._hello
        except TimeoutError:
            raise ConnectFailed(f"{url} does not answer session.start") from None

    def send(self, message: Message) -> None:
        if self._wire is not None:
            self._wire.send(_CODEC.encode(message))

    def close(self) -> None:
        if self._wire is not None:
            self._wire.close()

    def cut(self) -> None:
        """Drop the socket without a close frame; the server sees a reset."""
        if self._wire is not None:
            self._wire.cut()

    def _on_frame(self, payload: bytes, now_s: float) -> None:
        message = _CODEC.decode(payload)
        match message:
            case Ping():
                self.send(Pong())
            case SessionCreated() if not self._hello.done():
                self.opened_s = now_s
                self._hello.set_result(message)
            case ErrorEvent() if not self._hello.done():
                failed = ConnectFailed(f"the session was refused: {message.error.message}")
                failed.refused = message.error.code
                self._hello.set_exception(failed)
            case _:
                self._hear(message, now_s)

    def _on_lost(self, reason: str) -> None:
        self.lost = True
        if not self._hello.done():
            self._hello.set_exception(ConnectFailed(reason))
        self._tell_lost()
