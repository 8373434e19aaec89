"""`BareDevice` in torch, on a GPU or CPU: memory, streams and CUDA graphs.

On a CPU all work is done when it is enqueued, so streams never wait and nothing is recorded.

https://docs.pytorch.org/docs/stable/notes/cuda.html
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from shared.errors import EngineError
from shared.telemetry.logs import get_logger
from workers.engine import DeviceKind
from workers.engine.device import ALIGNMENT, Execution, Extent, Stream, StridedBlock

# Blocks are copied as words; rows of KV are whole words, because heads have an even number of values.
_WORD: Final = torch.int32
_WORD_BYTES: Final = 4

Tensors = dict[str, torch.Tensor]


@contextmanager
def computing() -> Iterator[None]:
    """Disable gradients, and convert torch's exceptions to a one-line `EngineError`."""
    try:
        with torch.inference_mode():
            yield
    except torch.OutOfMemoryError as error:
        raise EngineError(
            f"torch is out of memory ({_first_line(error)}); lower REPLYLINE_WORKER__SLOTS or its MAX_LENGTH"
        ) from error
    except RuntimeError as error:  # includes CUDA errors
        raise EngineError(f"torch failed ({_first_line(error)}); restart the worker") from error


class TorchExecution:
    """Runs `work` on tensors that are bound by name to device addresses; `dtypes` has each one's type."""

    def __init__(
        self, device: "TorchDevice", dtypes: Mapping[str, torch.dtype], work: Callable[[Tensors], None]
    ) -> None:
        self._device = device
        self._dtypes = dtypes
        self._work = work
        self._tensors: Tensors = {}

    def bind(self, name: str, address: int, shape: tuple[int, ...]) -> None:
        self._tensors[name] = self._device.tensor(address, shape, self._dtypes[name])

    def enqueue(self) -> None:
        self._work(self._tensors)


class TorchStream:
    """A CUDA stream; on a CPU `stream` has no value."""

    def __init__(self, device: "TorchDevice", stream: Any) -> None:
        self._device = device
        self._stream = stream

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        with self._chosen():
            self._device.bytes_at(target, num_bytes).copy_(self._device.bytes_at(source, num_bytes), non_blocking=True)

    def copy_block(self, target: StridedBlock, source: StridedBlock, extent: Extent) -> None:
        with self._chosen():
            self._device.words_of(target, extent).copy_(self._device.words_of(source, extent), non_blocking=True)

    def run(self, execution: Execution) -> None:
        assert isinstance(execution, TorchExecution)
        with self._chosen():
            execution.enqueue()

    def capture(self, work: Callable[[], None]) -> Any:
        """Return a CUDA graph of the work that `work` enqueues here.

        All graphs share one memory pool, because none runs at the same time as another; record the largest first.
        """
        if self._stream is None:
            return None
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self._device.pool, stream=self._stream):
                work()
        except RuntimeError as error:
            get_logger().warning("step_not_recorded", cause=_first_line(error))
            return None
        return graph

    def launch(self, replay: Any) -> None:
        with self._chosen():
            replay.replay()

    def wait_for(self, other: Stream) -> None:
        assert isinstance(other, TorchStream)
        if self._stream is not None:
            self._stream.wait_stream(other._stream)  # noqa: SLF001 - of the same class

    def synchronize(self) -> None:
        if self._stream is not None:
            self._stream.synchronize()

    def _chosen(self) -> AbstractContextManager[None]:
        return nullcontext() if self._stream is None else torch.cuda.stream(self._stream)


class TorchDevice:
    """Memory by address, as in `BareDevice`, and as tensors: every address is inside one of its slabs."""

    def __init__(self, kind: str) -> None:
        """Open a device: `cuda` is the first GPU, or `cpu`."""
        self.is_cuda = kind == "cuda"
        self.kind: DeviceKind = "gpu" if self.is_cuda else "cpu"
        self.device = torch.device(kind, 0) if self.is_cuda else torch.device(kind)
        self.records = self.is_cuda  # whether its streams support capture
        self.pool: Any = torch.cuda.graph_pool_handle() if self.is_cuda else None
        self._slabs: list[torch.Tensor] = []  # sorted by address
        self._starts: list[int] = []

    def allocate(self, num_bytes: int) -> int:
        return self._add(torch.zeros(_padded(num_bytes), dtype=torch.uint8, device=self.device))

    def allocate_pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        address = self._add(torch.zeros(_padded(num_bytes), dtype=torch.uint8, pin_memory=self.is_cuda))
        pinned: NDArray[np.uint8] = self.bytes_at(address, num_bytes).numpy()
        return pinned

    def open_stream(self) -> TorchStream:
        make: Any = torch.cuda.Stream  # torch has no types for it
        return TorchStream(self, make(self.device) if self.is_cuda else None)

    def free_bytes(self) -> int:
        """Return the GPU's free memory in bytes."""
        free_bytes, _ = torch.cuda.mem_get_info(self.device)
        return int(free_bytes)

    def tensor(self, address: int, shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
        """Return the memory from `address` as a tensor."""
        count = int(np.prod(shape)) * dtype.itemsize
        return self.bytes_at(address, count).view(dtype).view(shape)

    def bytes_at(self, address: int, num_bytes: int) -> torch.Tensor:
        slab, offset = self._find(address)
        return slab[offset : offset + num_bytes]

    def words_of(self, block: StridedBlock, extent: Extent) -> torch.Tensor:
        """Return a block's part as words `[slices, rows, words]`."""
        slab, offset = self._find(block.address)
        words = slab.view(_WORD)
        pitch = block.pitch // _WORD_BYTES
        shape = (extent.slices, extent.rows, extent.width // _WORD_BYTES)
        start = words.storage_offset() + offset // _WORD_BYTES
        return words.as_strided(shape, (block.rows * pitch, pitch, 1), start)

    def close(self) -> None:
        self._slabs.clear()
        self._starts.clear()
        if self.is_cuda:
            torch.cuda.synchronize(self.device)
            torch.cuda.empty_cache()

    def _add(self, slab: torch.Tensor) -> int:
        slab = slab[-slab.data_ptr() % ALIGNMENT :]
        start: int = slab.data_ptr()
        at = bisect_right(self._starts, start)
        self._starts.insert(at, start)
        self._slabs.insert(at, slab)
        return start

    def _find(self, address: int) -> tuple[torch.Tensor, int]:
        at = bisect_right(self._starts, address) - 1
        return self._slabs[at], address - self._starts[at]


def _padded(num_bytes: int) -> int:
    """Return a size that allows alignment to `ALIGNMENT` and whole words."""
    return -(-num_bytes // ALIGNMENT) * ALIGNMENT + ALIGNMENT


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
