"""A trace store that takes everything and keeps nothing."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

_TAKEN = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@dataclass(slots=True)
class TraceSink:
    endpoint: str = ""
    num_batches: int = 0
    num_bytes: int = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection: requests with a length, one after another."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                fields = dict(line.split(b":", 1) for line in head.lower().split(b"\r\n")[1:] if b":" in line)
                body = await reader.readexactly(int(fields[b"content-length"]))
                self.num_batches += 1
                self.num_bytes += len(body)
                writer.write(_TAKEN)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


@asynccontextmanager
async def trace_sink() -> AsyncIterator[TraceSink]:
    """On this event loop, until the end."""
    sink = TraceSink()
    server = await asyncio.start_server(sink._serve, "127.0.0.1", 0)
    sink.endpoint = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield sink
    finally:
        server.close()
