"""A TCP proxy that simulates a bad network: distant, narrow, silent, fragmenting, slow to report that a connection has
ended, or cutting its connections by a reset. The names of the faults are toxiproxy's.

It runs in its holder's event loop. A change applies to data read after it, in both directions.
"""

import asyncio
from dataclasses import dataclass
from typing import Self

from ops.lab.client.wire import reset_on_close
from tests.chaos.faults.schedule import Kind

_LATENCY_S = 0.05
SLOW_S = 0.15
_BANDWIDTH_BYTES_PER_S = 32_000.0
_SLICE_BYTES = 16
_TOLD_LATE_S = 1.0
_READ_BYTES = 1 << 18
_NARROW_READ_BYTES = 1 << 10
_MOST_PENDING = 256  # reads on their way; further ones wait in the socket


@dataclass(slots=True)
class _Ends:
    """A connection's two sockets: the client's, then the server's. If one is lost the other is closed after
    `told_late_s`.
    """

    writers: list[asyncio.StreamWriter]
    told_late_s: float = 0.0


class Proxy:
    """A proxy on `port` in front of `host:target_port`. `delay_s` delays every byte and keeps order and rate;
    `bytes_per_s` (None: unlimited) is the rate of each direction of each connection; `slice_bytes` (None: unchanged) is
    the size of a write. `carried_bytes` counts the bytes passed, `num_cut` the connections that the proxy has ended.
    Use as an async context manager."""

    def __init__(self, host: str, target_port: int, *, delay_s: float = 0.0, bytes_per_s: float | None = None) -> None:
        self._host = host
        self.target_port = target_port
        self.delay_s = delay_s
        self.bytes_per_s = bytes_per_s
        self.slice_bytes: int | None = None
        self.carried_bytes = self.num_cut = 0
        self._server_goes_first = False
        self.port = 0
        self._server: asyncio.Server | None = None
        self._connections: dict[asyncio.Task[None], _Ends] = {}
        self._to_server, self._to_client = asyncio.Event(), asyncio.Event()
        self._to_server.set()
        self._to_client.set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, self._host, 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def worsen(self, kind: Kind) -> None:
        """Apply a fault of the network.

        `LATENCY` in each direction, `BANDWIDTH` per connection and direction, `SLICER` with a fixed write size, and
        `TIMEOUT`, which passes nothing, last until `clear`. `RESET` and `SLOW_CLOSE` happen once; a slow close ends in
        turn the connections to the server and to the clients immediately, and those of the other side later. A slow
        dependency is `LATENCY` of three times the length; a partition passes nothing, or nothing in one direction
        (`PARTITION_OUT`: to the server), until `clear`.
        """
        match kind:
            case Kind.LATENCY | Kind.SLOW_KAFKA | Kind.SLOW_REDIS:
                self.delay_s = _LATENCY_S if kind is Kind.LATENCY else SLOW_S
            case Kind.BANDWIDTH:
                self.bytes_per_s = _BANDWIDTH_BYTES_PER_S
            case Kind.SLICER:
                self.slice_bytes = _SLICE_BYTES
            case Kind.TIMEOUT | Kind.PARTITION | Kind.PARTITION_OUT | Kind.PARTITION_IN:
                self.silence(to_server=kind is not Kind.PARTITION_IN, to_client=kind is not Kind.PARTITION_OUT)
            case Kind.RESET:
                self.reset()
            case Kind.SLOW_CLOSE:
                self._server_goes_first = not self._server_goes_first
                self.hang_up(on_server=self._server_goes_first, told_late_s=_TOLD_LATE_S)
            case _:
                raise AssertionError(f"{kind} is no matter of the network")

    def clear(self, kind: Kind) -> None:
        """Remove the faults. A silence ends with a reset: half-open connections are noticed now. A partition ends
        without one: delayed data arrives late, as in TCP.
        """
        self.delay_s, self.bytes_per_s, self.slice_bytes = 0.0, None, None
        if kind is Kind.TIMEOUT:
            self.reset()
        self.speak()

    def silence(self, *, to_server: bool = True, to_client: bool = True) -> None:
        """Keep connections open, including new ones, and pass no data in that direction, or in both: half open until
        they are reset, or until `speak` releases the delayed data, as TCP does after a partition."""
        for silent, way in ((to_server, self._to_server), (to_client, self._to_client)):
            if silent:
                way.clear()

    def speak(self) -> None:
        self._to_server.set()
        self._to_client.set()

    def reset(self) -> None:
        """Reset every connection in both directions; new ones are accepted immediately."""
        for task, ends in self._connections.items():
            for writer in ends.writers:
                reset_on_close(writer.transport)
                writer.transport.abort()
            task.cancel()
            self.num_cut += 1

    def hang_up(self, *, on_server: bool, told_late_s: float) -> None:
        """Close every connection towards one side, the server's or the clients'; the other side is closed this much
        later, and its data sent in between is lost.
        """
        for ends in self._connections.values():
            if not ends.told_late_s:
                ends.told_late_s = told_late_s
                ends.writers[-1 if on_server else 0].close()
                self.num_cut += 1

    async def close(self) -> None:
        """Refuse new connections and cut those there are. May be called again."""
        server, self._server = self._server, None
        if server is not None:
            server.close()
        for task in self._connections:
            task.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ends = _Ends([writer])
        task = asyncio.create_task(self._join(reader, writer, ends))
        self._connections[task] = ends
        task.add_done_callback(self._connections.__delitem__)

    async def _join(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: _Ends) -> None:
        try:
            far_reader, far_writer = await asyncio.open_connection(self._host, self.target_port)
        except OSError:
            writer.close()
            return
        ends.writers.append(far_writer)
        try:
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(self._carry(reader, far_writer, ends, self._to_server))
                    group.create_task(self._carry(far_reader, writer, ends, self._to_client))
            except* OSError:
                pass  # one end is closed: so is the connection
            await asyncio.sleep(ends.told_late_s)
        finally:
            writer.close()
            far_writer.close()

    async def _carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, ends: _Ends, flows: asyncio.Event
    ) -> None:
        """From one to the other, until the one ends."""
        loop = asyncio.get_running_loop()
        pending: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(_MOST_PENDING)

        async def deliver() -> None:
            while True:
                due_s, data = await pending.get()
                if (wait_s := due_s - loop.time()) > 0:
                    await asyncio.sleep(wait_s)
                await flows.wait()
                # uvloop raises RuntimeError for a closed transport; asyncio does not.
                if writer.transport.is_closing() or ends.told_late_s:
                    raise ConnectionResetError
                if not data:
                    writer.write_eof()
                    return
                await self._write(writer, data)
                if self.bytes_per_s is not None:
                    await asyncio.sleep(len(data) / self.bytes_per_s)

        async with asyncio.TaskGroup() as group:
            group.create_task(deliver())
            data = b"-"
            while data:
                data = await reader.read(_READ_BYTES if self.bytes_per_s is None else _NARROW_READ_BYTES)
                await pending.put((loop.time() + self.delay_s, data))

    async def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        """Raises `OSError` if that end is closed."""
        self.carried_bytes += len(data)
        size = self.slice_bytes or len(data)
        for start in range(0, len(data), size):
            if writer.transport.is_closing():
                raise ConnectionResetError
            writer.write(data[start : start + size])
            await writer.drain()
            if self.slice_bytes is not None:
                await asyncio.sleep(0)
