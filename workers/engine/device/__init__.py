"""The interface of a GPU for engines: memory by address, streams, and programs that run on them.

A program is a graph that was built for the device. Memory is identified by its address and accesses are not checked, so
the code that enqueues work must keep its memory allocated, and must not touch host memory before the stream has been
synchronised. Every method raises `EngineError` if the device fails.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from workers.engine import DeviceKind

# TensorRT requires every tensor's address to be a multiple of this.
ALIGNMENT = 256


@dataclass(frozen=True, slots=True)
class StridedBlock:
    """Rows of bytes in slices of memory: row r of slice s begins at `address + (s * rows + r) * pitch`.

    `rows` is the number of rows of a whole slice; a copy may use fewer.
    """

    address: int
    pitch: int
    rows: int


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of a block to copy: bytes of each row, rows of each slice, and slices."""

    width: int
    rows: int
    slices: int


class Execution(Protocol):
    """A program with one set of shapes and addresses at a time."""

    def bind(self, name: str, address: int, shape: tuple[int, ...]) -> None:
        """Place an input or output at `address`. A cache's past and present may have the same address."""


class Program(Protocol):
    @property
    def workspace_bytes(self) -> int:
        """Return the memory that one execution needs besides its weights, inputs and outputs."""

    def open(self, profile: int, workspace: int, *, one_shape: bool) -> Execution:
        """Return an execution with an optimisation profile.

        Args:
            profile: the profile's index.
            workspace: address of `workspace_bytes`; executions that never run at the same time may share it.
            one_shape: the execution will be used with a single shape.
        """


class Stream(Protocol):
    """Work in order: each piece starts when all pieces enqueued before it have ended."""

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        """Copy between device memory and pinned host memory, in any direction."""

    def copy_block(self, target: StridedBlock, source: StridedBlock, extent: Extent) -> None:
        """Copy rows that are not contiguous, as one piece of work."""

    def run(self, execution: Execution) -> None:
        """Run an execution with its current bindings."""

    def capture(self, work: Callable[[], None]) -> "Replay | None":
        """Record the work that `work` enqueues here without running it; None if the device does not support that."""

    def launch(self, replay: "Replay") -> None:
        """Enqueue all recorded work as one piece."""

    def wait_for(self, other: "Stream") -> None:
        """Make work that is enqueued after this call wait for the work enqueued on `other` so far."""

    def synchronize(self) -> None:
        """Wait until all work here has ended."""


class Replay(Protocol):
    """Recorded work with its addresses and shapes."""


class BareDevice(Protocol):
    """Memory and streams: what KV and copies to the host need.

    `kind`: a GPU, or a CPU in its place.
    """

    kind: DeviceKind

    def allocate(self, num_bytes: int) -> int:
        """Return the address of zeroed device memory, a multiple of `ALIGNMENT`. `close` frees it."""

    def allocate_pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        """Return host memory that the device can copy from and to asynchronously. `close` frees it."""

    def open_stream(self) -> Stream: ...

    def close(self) -> None:
        """Free everything. Idempotent."""


class Device(BareDevice, Protocol):
    def load(self, plan: bytes) -> Program:
        """Load a program that was built for this device, with its weights."""


def aligned(num_bytes: int) -> int:
    """Return `num_bytes` rounded up to a multiple of `ALIGNMENT`."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT


class Staging:
    """Device memory and pinned host memory, with named arrays at the same offsets in both.

    All of it is copied in one transfer.
    """

    def __init__(self, device: BareDevice, arrays: dict[str, tuple[tuple[int, ...], Any]]) -> None:
        """Allocate memory for `arrays`, given each one's shape and dtype."""
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
