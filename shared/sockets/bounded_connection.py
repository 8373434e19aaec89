"""A connection of the `websockets` library within bounds."""

from typing import Any, Final, cast

from websockets.asyncio.server import ServerConnection

from shared.sockets.bounded_transport import HEAD_BYTES, BoundedTransport, Bounds

_TOO_LARGE: Final = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\nConnection: close\r\nContent-Type: text/plain\r\n"
    b"Content-Length: 31\r\n\r\nthe headers are over 65,536 B.\n"
)


class BoundedConnection(ServerConnection):
    """A connection that is counted at accept, reads nothing from a client that does not read, and answers headers that
    are too large with 431."""

    def __init__(self, *args: Any, bounds: Bounds, **options: Any) -> None:
        super().__init__(*args, **options)
        self._bounds = bounds

    def connection_made(self, transport: Any) -> None:
        self.line = BoundedTransport(transport, self._bounds)
        super().connection_made(cast("Any", self.line))

    def connection_lost(self, exc: Exception | None) -> None:
        self.line.lost()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self.line.receive(data, self._take)

    def _take(self, data: bytes) -> None:
        is_head = self.request is None
        if is_head:
            self.line.head_bytes += len(data)
            if self.line.head_bytes > HEAD_BYTES:
                self.line.write(_TOO_LARGE)
                self.line.close()
                return
        super().data_received(data)
        if is_head and self.request is not None:
            self.line.end_head()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.line.fill()

    def resume_writing(self) -> None:
        super().resume_writing()
        self.line.drain()
