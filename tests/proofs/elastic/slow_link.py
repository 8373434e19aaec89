"""A link between two TCP ends that takes time, loses segments, and can be cut: for where the kernel has no netem.

Each way takes half of `round_trip_s`, and `bytes_per_s` if that is set. A lost segment comes after TCP's least
retransmission time, and what is behind it waits for it. A cut link passes nothing and says nothing, as a cable that is
pulled; what was sent into it comes when TCP sends it again, after waits that double: later than the link is back.
`reset` hangs up, as a middlebox that restarts.
"""

import asyncio
import random
from contextlib import suppress
from typing import Final, Self

_RETRANSMITTED_S: Final = 0.2
_SEGMENT: Final = 1_448


class SlowLink:
    """Use as an async context manager; it listens on `port`."""

    def __init__(self, target: int, *, round_trip_s: float = 0.0, loss: float = 0.0, seed: int = 1) -> None:
        self._target = target
        self.round_trip_s = round_trip_s
        self.loss = loss
        self.bytes_per_s = float("inf")
        self._random = random.Random(seed)
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self.port = 0

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.reset()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        self._open.clear()

    def mend(self) -> None:
        self._open.set()

    def reset(self) -> None:
        for writer in list(self._writers):
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            for ends in ((reader, far_writer), (far_reader, writer)):
                task = asyncio.create_task(self._pump(*ends))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward one direction: read immediately, write when the segment has arrived."""
        loop, due_s = asyncio.get_running_loop(), 0.0
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        self._writers.add(writer)

        async def write() -> None:
            while (found := await queue.get())[1]:
                await asyncio.sleep(found[0] - loop.time())
                await self._retransmitted()
                writer.write(found[1])
            writer.close()

        writing = asyncio.create_task(write())
        try:
            while data := await reader.read(_SEGMENT):
                late_s = _RETRANSMITTED_S if self._random.random() < self.loss else 0.0
                due_s = max(due_s, loop.time() + self.round_trip_s / 2 + late_s) + len(data) / self.bytes_per_s
                queue.put_nowait((due_s, data))
            queue.put_nowait((due_s, b""))
            await writing
        except OSError:
            writer.transport.abort()
        finally:
            writing.cancel()
            self._writers.discard(writer)

    async def _retransmitted(self) -> None:
        """Wait, of a cut link, until TCP sends for the first time after it is back."""
        loop = asyncio.get_running_loop()
        sent_s, wait_s = loop.time(), _RETRANSMITTED_S
        while not self._open.is_set():
            await self._open.wait()
            while sent_s < loop.time():
                sent_s, wait_s = sent_s + wait_s, 2 * wait_s
            await asyncio.sleep(sent_s - loop.time())
