"""A TCP proxy that holds every byte back for a while, in each direction, and keeps their order and their rate.

So a Redis behind it is as far away as a round trip of twice the delay. It lives in the bench's own event loop.
"""

import asyncio
from collections.abc import Callable
from typing import Self

_READ_BYTES = 1 << 18
_MOST_PENDING = 256  # reads on their way; further ones wait in the socket


class SlowProxy:
    """`delay_s` may be changed at any time: it holds for what is read from then on. Use as an async context manager."""

    def __init__(self, host: str, port: int, *, delay_s: float = 0.0) -> None:
        self._host = host
        self._target_port = port
        self.delay_s = delay_s
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Refuse new connections and cut those there are. May be called again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._join(reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self._target_port)
        except OSError:
            writer.close()
            return
        delay = lambda: self.delay_s  # noqa: E731 - both directions follow a change
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_carry(reader, far_writer, delay))
                group.create_task(_carry(far_reader, writer, delay))
        except* OSError:
            pass  # one end is gone: so is the connection
        finally:
            writer.close()
            far_writer.close()


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, delay_s: Callable[[], float]) -> None:
    """From one to the other, until the one ends."""
    loop = asyncio.get_running_loop()
    pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_PENDING)

    async def deliver() -> None:
        while True:
            due_s, data = await pending.get()
            if (wait_s := due_s - loop.time()) > 0:
                await asyncio.sleep(wait_s)
            if not data:
                writer.write_eof()
                return
            writer.write(data)
            await writer.drain()

    async with asyncio.TaskGroup() as group:
        group.create_task(deliver())
        data = b"-"
        while data:
            data = await reader.read(_READ_BYTES)
            await pending.put((loop.time() + delay_s(), data))
