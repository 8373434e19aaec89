"""TCP between the world's processes: delay, back-pressure, end of stream, resets, silent links."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from tests.world.virtual.loop import VirtualLoop
    from tests.world.virtual.node import Node

_KERNEL_BYTES: Final = 65_536
_FIRST_PORT: Final = 20_000


@dataclass(frozen=True, slots=True)
class _Socket:
    port: int
    family: int = socket.AF_INET

    def getsockname(self) -> tuple[str, int]:
        return "127.0.0.1", self.port

    def setsockopt(self, *_: Any) -> None: ...


class Listener:
    """A listening socket (`asyncio.Server`)."""

    def __init__(self, network: "Network", node: "Node", factory: Callable[[], Any], port: int) -> None:
        self.node, self.factory, self.port = node, factory, port
        self.sockets = (_Socket(port),)
        self._network = network
        self._serving = True

    def close(self) -> None:
        self._serving = False
        self._network.forget([self.port])

    async def wait_closed(self) -> None: ...

    def is_serving(self) -> bool:
        return self._serving

    async def start_serving(self) -> None: ...

    def get_loop(self) -> asyncio.AbstractEventLoop:
        return self.node.loop


class Network:
    """The listeners, by port."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._listeners: dict[int, Listener] = {}
        self._last_port = _FIRST_PORT
        self.num_pipes = 0

    def listen(self, node: "Node", factory: Callable[[], Any], port: int) -> Listener:
        """Listen on a port. Raises `OSError` if it is in use."""
        if not port:
            self._last_port += 1
            port = self._last_port
        if port in self._listeners:
            raise OSError(98, "address in use")
        node.ports.append(port)
        self._listeners[port] = made = Listener(self, node, factory, port)
        return made

    def forget(self, ports: list[int]) -> None:
        """Remove the listeners of these ports."""
        for port in ports:
            self._listeners.pop(port, None)

    def connect(self, node: "Node", factory: Callable[[], Any], port: int) -> tuple["Pipe", Any]:
        """Connect to a port. Raises `ConnectionRefusedError` if no process listens there."""
        listener = self._listeners.get(port)
        if listener is None:
            raise ConnectionRefusedError(111, f"nobody listens at {port}")
        ours, theirs = Pipe(self._loop, node), Pipe(self._loop, listener.node)
        ours.peer, theirs.peer = theirs, ours
        listener.node.context.run(theirs.begin, listener.factory())
        protocol = factory()
        ours.begin(protocol)
        return ours, protocol


class Pipe(asyncio.Transport):
    """One end of a connection."""

    peer: "Pipe"

    def __init__(self, loop: "VirtualLoop", node: "Node") -> None:
        super().__init__()
        loop.network.num_pipes += 1
        self.number = loop.network.num_pipes
        self.node = node
        self.slow_by_s = 0.0
        self._loop = loop
        self._protocol: Any = None
        self._closing = self._gone = self._writing_paused = self._reading_paused = self._silent = False
        self._in_flight = 0
        self._arrives_s = 0.0
        self._high, self._low = 65_536, 16_384
        self._unread: deque[bytes | None] = deque()
        node.pipes[self] = None

    def __hash__(self) -> int:
        return self.number

    def begin(self, protocol: Any) -> None:
        """Hand the connection to its protocol."""
        self._protocol = protocol
        protocol.connection_made(self)

    # --- what a protocol asks of its transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        addresses = {"peername": ("127.0.0.1", 40_000 + self.number % 20_000), "sockname": ("127.0.0.1", 1)}
        return addresses.get(name, default)

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing

    def get_write_buffer_size(self) -> int:
        return max(0, self._in_flight - _KERNEL_BYTES)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else 65_536
        self._low = low if low is not None else self._high // 4

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def write(self, data: Any) -> None:
        if self._closing or not data:
            return
        self._in_flight += len(data)
        self._send(bytes(data))
        if not self._writing_paused and self.get_write_buffer_size() > self._high:
            self._writing_paused = True
            self._protocol.pause_writing()

    def writelines(self, lines: Any) -> None:
        self.write(b"".join(lines))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing:
            self._send(None)

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        if self._reading_paused:
            self._reading_paused = False
            self._loop.call_soon(self._catch_up)

    def is_reading(self) -> bool:
        return not self._reading_paused

    def close(self) -> None:
        if not self._closing:
            self._closing = True
            self._send(None)
            self._loop.call_soon(self._lost, None, context=self.node.context)

    def abort(self) -> None:
        if not self._gone:
            self._closing = True
            self.reset_peer()
            self._loop.call_soon(self._lost, None, context=self.node.context)

    # --- what the network does

    def reset_peer(self) -> None:
        """Report a reset to the other end."""
        peer = self.peer
        self._loop.after(self._loop.lag_s(), peer._lost, ConnectionResetError(104, "reset"), node=peer.node)

    def be_silent(self) -> None:
        """Drop all data in both directions while both ends stay open."""
        self._silent = self.peer._silent = True

    def _send(self, item: bytes | None) -> None:
        if self._silent:
            return
        lag_s = self._loop.lag_s() + self.slow_by_s
        self._arrives_s = max(self._arrives_s + 1e-7, self._loop.now + lag_s)
        peer = self.peer
        self._loop.call_at(self._arrives_s, peer._come, item, context=peer.node.context)

    def _come(self, item: bytes | None) -> None:
        if self._gone:
            return
        if self._reading_paused or self._unread:
            self._unread.append(item)
        else:
            self._take(item)

    def _catch_up(self) -> None:
        while self._unread and not self._reading_paused and not self._gone:
            self._take(self._unread.popleft())

    def _take(self, item: bytes | None) -> None:
        if item is None:
            if not self._protocol.eof_received():
                self.close()
            return
        self.peer._arrived(len(item))
        self._loop.trace("net", self.node.name, len(item))
        self._protocol.data_received(item)

    def _arrived(self, num_bytes: int) -> None:
        self._in_flight -= num_bytes
        if self._writing_paused and self.get_write_buffer_size() <= self._low:
            self._writing_paused = False
            self._loop.call_soon(self._protocol.resume_writing, context=self.node.context)

    def _lost(self, error: Exception | None) -> None:
        if not self._gone:
            self._gone = self._closing = True
            self.node.pipes.pop(self, None)
            self._protocol.connection_lost(error)
