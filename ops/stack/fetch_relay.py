"""Wake a fetch that waits at librdkafka's mock cluster when a record is produced.

The mock cluster answers a fetch without records when its `max_wait_ms` is over, even if a record has come in the
meantime. This relay is between it and its clients: it fetches without a wait, and keeps an empty answer back until a
record of one of the fetch's topics is produced, or the client's `max_wait_ms` is over. Everything else passes unchanged
except for the address that the cluster names as its own.

The layouts are those of https://kafka.apache.org/protocol. A fetch of another version than 4 to 11 waits at the
cluster, as without the relay.
"""

import asyncio
import struct
import threading
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import uvloop

_PRODUCE: Final = 0
_FETCH: Final = 1
# The versions from which a produce request has a transaction, and a fetch and its answer their fields.
_TRANSACTION: Final = 3
_FLEXIBLE_PRODUCE: Final = 9
_ABORTED: Final = 4
_LOG_START: Final = 5
_SESSION: Final = 7
_REPLICA: Final = 11
_FLEXIBLE_FETCH: Final = 12
_HOST: Final = "127.0.0.1"
_MAX_BYTES: Final = 100_000_000  # as librdkafka


@dataclass
class _Fields:
    """Reads a message's fields one after the other."""

    data: bytes
    at: int = 0

    def number(self, layout: str) -> int:
        """Return the next number, of `struct`'s layout `h`, `i` or `q`."""
        (value,) = struct.unpack_from(f">{layout}", self.data, self.at)
        self.at += struct.calcsize(layout)
        return int(value)

    def text(self) -> bytes:
        """Return the next text; empty if it is null."""
        return self._next(self.number("h"))

    def skip_bytes(self) -> int:
        """Skip bytes whose length precedes them; return the length, 0 if they are null."""
        return len(self._next(self.number("i")))

    def skip(self, size: int) -> None:
        self.at += max(0, size)

    def _next(self, size: int) -> bytes:
        begun, self.at = self.at, self.at + max(0, size)
        return self.data[begun : self.at]


@dataclass
class _Request:
    """A request's frame, without the size before it."""

    frame: bytes
    key: int = field(init=False)
    version: int = field(init=False)
    body: int = field(init=False)
    """Where the body begins; behind the header of flexible versions are tags as well."""

    def __post_init__(self) -> None:
        fields = _Fields(self.frame)
        self.key, self.version = fields.number("h"), fields.number("h")
        fields.number("i")
        fields.text()
        self.body = fields.at

    @property
    def may_be_held(self) -> bool:
        return self.key == _FETCH and _ABORTED <= self.version < _FLEXIBLE_FETCH

    def without_wait(self) -> tuple[bytes, float]:
        """Return the fetch's frame with no time to wait, and the time in seconds that its client gave it."""
        place = self.body + 4  # behind the replica's id
        (wait_ms,) = struct.unpack_from(">i", self.frame, place)
        return self.frame[:place] + bytes(4) + self.frame[place + 4 :], max(0, wait_ms) / 1_000

    def produced(self) -> tuple[bool, list[bytes] | None]:
        """Return whether the cluster answers this produce request, and its topics; None if its version is not read."""
        if self.version >= _FLEXIBLE_PRODUCE:
            return True, None
        fields = _Fields(self.frame, self.body)
        if self.version >= _TRANSACTION:
            fields.text()  # the transaction
        answered = fields.number("h") != 0
        fields.number("i")
        return answered, list(self._topics(fields))

    @staticmethod
    def _topics(fields: _Fields) -> Iterator[bytes]:
        for _ in range(fields.number("i")):
            yield fields.text()
            for _ in range(fields.number("i")):
                fields.number("i")
                fields.skip_bytes()


def has_records(version: int, answer: bytes) -> bool:
    """Return whether the answer to a fetch, of a version from 4 to 11, has records or an error."""
    fields = _Fields(answer, at=8)  # behind the request's number and the broker's throttling
    if version >= _SESSION and (fields.number("h"), fields.number("i"))[0]:
        return True
    for _ in range(fields.number("i")):
        fields.text()
        for _ in range(fields.number("i")):
            fields.number("i")
            if fields.number("h"):
                return True
            fields.skip(24 if version >= _LOG_START else 16)  # offsets
            fields.skip(16 * fields.number("i"))  # aborted transactions
            fields.skip(4 if version >= _REPLICA else 0)
            if fields.skip_bytes():
                return True
    return False


class FetchRelay:
    """Listens on a free port of 127.0.0.1 for the clients of the cluster at `port`, in a thread."""

    def __init__(self, port: int) -> None:
        self._cluster_port = port
        self._held: dict[asyncio.Event, bytes] = {}
        """The fetches that are kept back, by what wakes them."""
        self._connections: set[asyncio.Task[None]] = set()
        self._loop = uvloop.new_event_loop()
        begun = asyncio.run_coroutine_threadsafe(self._listen(), self._loop)
        self._thread = threading.Thread(target=self._loop.run_forever, name="fetch-relay", daemon=True)
        self._thread.start()
        self._server = begun.result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Close the port and each connection."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _listen(self) -> asyncio.Server:
        return await asyncio.start_server(self._accepted, _HOST, 0)

    async def _end(self) -> None:
        self._server.close()
        for each in self._connections:
            each.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            with suppress(ConnectionError, struct.error, asyncio.IncompleteReadError, asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            self._connections.discard(task)
            writer.transport.abort()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection's requests one after the other, as a broker does."""
        from_cluster, to_cluster = await asyncio.open_connection(_HOST, self._cluster_port)
        try:
            while True:
                request = _Request(await _frame(reader))
                answer = await self._answer(request, from_cluster, to_cluster)
                if answer is not None:
                    writer.write(_sized(answer))
        finally:
            to_cluster.transport.abort()

    async def _answer(
        self, request: _Request, from_cluster: asyncio.StreamReader, to_cluster: asyncio.StreamWriter
    ) -> bytes | None:
        """Return the answer; None for a produce request that wants none."""
        if request.may_be_held:
            return await self._fetched(request, from_cluster, to_cluster)
        to_cluster.write(_sized(request.frame))
        if request.key == _PRODUCE:
            answered, topics = request.produced()
            answer = await _frame(from_cluster) if answered else None
            self._wake(topics)
            return answer
        return self._named(await _frame(from_cluster))

    async def _fetched(
        self, request: _Request, from_cluster: asyncio.StreamReader, to_cluster: asyncio.StreamWriter
    ) -> bytes:
        frame, wait_s = request.without_wait()
        until = self._loop.time() + wait_s
        while True:
            woken = asyncio.Event()
            self._held[woken] = frame
            try:
                to_cluster.write(_sized(frame))
                answer = await _frame(from_cluster)
                if has_records(request.version, answer):
                    return answer
                async with asyncio.timeout_at(until):
                    await woken.wait()
            except TimeoutError:
                return answer
            finally:
                del self._held[woken]

    def _wake(self, topics: list[bytes] | None) -> None:
        """Wake the fetches of these topics, or all."""
        names = None if topics is None else [struct.pack(">h", len(topic)) + topic for topic in topics]
        for woken, fetch in self._held.items():
            if names is None or any(name in fetch for name in names):
                woken.set()

    def _named(self, answer: bytes) -> bytes:
        """Return an answer with this relay's port where it has the cluster's."""
        host = _HOST.encode()
        return answer.replace(host + struct.pack(">i", self._cluster_port), host + struct.pack(">i", self.port))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    """Return the next frame. Raises `ConnectionError` for what is not Kafka's protocol."""
    (size,) = struct.unpack(">i", await reader.readexactly(4))
    if not 0 <= size <= _MAX_BYTES:
        raise ConnectionError(f"a frame of {size} bytes")
    return await reader.readexactly(size)


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame
