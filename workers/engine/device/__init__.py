"""A GPU as its engines use it: memory by address, streams, and programs that run on them.

A program is a graph that was built for the device. Memory is named by its address; nothing is checked on the way to
the device, so whoever enqueues work keeps its memory alive, and leaves host memory alone until the stream has been
synchronised. Every method raises `EngineError` where the device fails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.engine import DeviceKind

# TensorRT wants every tensor's address to be a multiple of this.
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class Block:
    """Rows of bytes in slices, somewhere in memory: row r of slice s begins at `address + (s * rows + r) * pitch`.

    `rows` are those of a whole slice, of which a copy may take fewer.
    """

    address: int
    pitch: int
    rows: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a block that is copied: bytes of each row, rows of each slice, slices."""

    width: int
    rows: int
    slices: int


class Execution(Protocol):
    """A program with one set of shapes and addresses at a time."""

    def bind(self, name: str, address: int, shape: tuple[int, ...]) -> None:
        """Put an input or output at `address`. The past and the present of a cache may share theirs."""


class Program(Protocol):
    @property
    def workspace_bytes(self) -> int:
        """Return the memory that one execution needs beside its weights, inputs and outputs."""

    def open(self, profile: int, workspace: int, *, one_shape: bool) -> Execution:
        """Return an execution by an optimisation profile, which will see `one_shape` only, or any.

        `workspace` is the address of `workspace_bytes`; executions that never run at once may share it.
        """


class Stream(Protocol):
    """Work in order: each is begun when all that were enqueued before it have ended."""

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Copy between any two memories, of which the host's is pinned."""

    def copy_block(self, target: Block, source: Block, extent: Extent) -> None:
        """Copy rows that do not lie together, in one piece of work."""

    def run(self, execution: Execution) -> None:
        """Run it with what is bound to it now."""

    def capture(self, work: Callable[[], None]) -> "Replay | None":
        """Record what `work` enqueues here, without running it; None where the device cannot."""

    def launch(self, replay: "Replay") -> None:
        """Enqueue all that was recorded, as one piece of work."""

    def wait_for(self, other: "Stream") -> None:
        """Have what is enqueued from now on wait for what has been enqueued on `other`."""

    def synchronize(self) -> None:
        """Wait until all work here has ended."""


class Replay(Protocol):
    """Recorded work, with its addresses and shapes."""


class BareDevice(Protocol):
    """Memory and streams, which is all that KV and what crosses to the host ask for.

    `kind`: a GPU, or a CPU in the place of one.
    """

    kind: DeviceKind

    def allocate(self, num_bytes: int) -> int:
        """Return the address of memory of the device, zeroed; a multiple of `ALIGNMENT`. Freed by `close`."""

    def allocate_pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        """Memory of the host that the device copies from and to while the host goes on. Freed by `close`."""

    def open_stream(self) -> Stream: ...

    def close(self) -> None:
        """Give back everything. Idempotent."""


class Device(BareDevice, Protocol):
    def load(self, plan: bytes) -> Program:
        """Load what was built for this device. Its weights are on the device from then on."""


def aligned(num_bytes: int) -> int:
    """`num_bytes`, rounded up to a multiple of `ALIGNMENT`."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class Staging:
    """Memory of the device and its pinned counterpart on the host, with named arrays at the same offsets of both.

    All of it crosses in one copy.
    """

    def __init__(self, device: BareDevice, arrays: dict[str, tuple[tuple[int, ...], Any]]) -> None:
        """`arrays`: each one's shape and dtype."""
        self.offsets: dict[str, int] = {}
        self.num_bytes = 0
        for name, (shape, dtype) in arrays.items():
            self.offsets[name] = self.num_bytes
            self.num_bytes += aligned(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        pinned = device.allocate_pinned(self.num_bytes)
        self.device_address = device.allocate(self.num_bytes)
        self.host_address: int = pinned.ctypes.data
        self.addresses = {name: self.device_address + offset for name, offset in self.offsets.items()}
        self.host: dict[str, NDArray[Any]] = {}
        for name, (shape, dtype) in arrays.items():
            count = int(np.prod(shape)) * np.dtype(dtype).itemsize
            self.host[name] = pinned[self.offsets[name] :][:count].view(dtype).reshape(shape)

    def send(self, stream: Stream) -> None:
        stream.copy(self.device_address, self.host_address, self.num_bytes)

    def fetch(self, stream: Stream) -> None:
        stream.copy(self.host_address, self.device_address, self.num_bytes)
