"""A device for the TensorRT engine that needs no GPU: its plans are ONNX graphs, run by ONNX Runtime on the CPU.

Its memory is the host's, by real addresses. Its streams defer work as long as they may: nothing runs before a call
waits for it, and of another stream only the work waited for. So an engine that reads too early, or overwrites the
source of a pending copy, computes something else here, as it would on a GPU.
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.lib.stride_tricks import as_strided

from shared.model.folder import ModelFolder
from workers.engine import DeviceKind
from workers.engine.device import ALIGNMENT, Device, Extent, StridedBlock
from workers.engine.device.tokens import sampler_for
from workers.engine.tensorrt.engine import TensorrtEngine
from workers.engine.tensorrt.plans import PlanShapes

Work = Callable[[], None]


def bytes_at(address: int, num_bytes: int) -> np.ndarray:
    return np.frombuffer((ctypes.c_uint8 * num_bytes).from_address(address), np.uint8)


def rows_at(block: StridedBlock, extent: Extent) -> np.ndarray:
    last = ((extent.slices - 1) * block.rows + extent.rows - 1) * block.pitch + extent.width
    shape = (extent.slices, extent.rows, extent.width)
    return as_strided(bytes_at(block.address, last), shape, (block.rows * block.pitch, block.pitch, 1))


class OnnxExecution:
    def __init__(self, session: Any, *, one_shape: bool) -> None:
        self._one_shape = one_shape
        types = {"tensor(int64)": np.int64, "tensor(float)": np.float32, "tensor(float16)": np.float16}
        self._session = session
        self._inputs = {value.name: types[value.type] for value in session.get_inputs()}
        self._outputs = {value.name: types[value.type] for value in session.get_outputs()}
        self._bound: dict[str, tuple[int, tuple[int, ...]]] = {}
        self._bindings: dict[Any, Any] = {}

    def bind(self, name: str, address: int, shape: tuple[int, ...]) -> None:
        assert name in self._inputs.keys() | self._outputs.keys(), f"the graph has no {name}"
        assert address % ALIGNMENT == 0, f"{name} is bound to {address:#x}"
        self._bound[name] = (address, shape)

    def work(self) -> Work:
        """Return a run with the present bindings."""
        assert self._bound.keys() == self._inputs.keys() | self._outputs.keys()
        key = tuple(self._bound.items())
        if key not in self._bindings:
            assert not (self._one_shape and self._bindings), "an execution of one shape is bound to another"
            binding = self._session.io_binding()
            for name, (address, shape) in self._bound.items():
                if name in self._inputs:
                    binding.bind_input(name, "cpu", 0, self._inputs[name], shape, address)
                else:
                    binding.bind_output(name, "cpu", 0, self._outputs[name], shape, address)
            self._bindings[key] = binding
        return lambda: self._session.run_with_iobinding(self._bindings[key])


class OnnxProgram:
    workspace_bytes = 1

    def __init__(self, session: Any) -> None:
        self.session = session

    def open(self, profile: int, workspace: int, *, one_shape: bool) -> OnnxExecution:
        assert profile in {0, 1}
        assert workspace
        return OnnxExecution(self.session, one_shape=one_shape)


class LateStream:
    def __init__(self) -> None:
        self._waiting: list[Work] = []
        self._num_done = 0

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        self._waiting.append(lambda: np.copyto(bytes_at(target, num_bytes), bytes_at(source, num_bytes)))

    def copy_block(self, target: StridedBlock, source: StridedBlock, extent: Extent) -> None:
        self._waiting.append(lambda: np.copyto(rows_at(target, extent), rows_at(source, extent)))

    def run(self, execution: OnnxExecution) -> None:
        self._waiting.append(execution.work())

    def capture(self, work: Work) -> list[Work]:
        kept, self._waiting = self._waiting, []
        work()
        recorded, self._waiting = self._waiting, kept
        return recorded

    def launch(self, replay: list[Work]) -> None:
        self._waiting.extend(replay)

    def wait_for(self, other: "LateStream") -> None:
        until = other._num_done + len(other._waiting)
        self._waiting.append(lambda: other.finish(until))

    def synchronize(self) -> None:
        self.finish(self._num_done + len(self._waiting))

    def finish(self, until: int) -> None:
        while self._num_done < until:
            self._num_done += 1
            self._waiting.pop(0)()


class OnnxDevice:
    """A device whose `num_allocations` counts allocations of its memory."""

    def __init__(self) -> None:
        self.kind: DeviceKind = "cpu"
        self.num_allocations = 0
        self.streams: list[LateStream] = []
        self.closed = False
        self._memory: list[np.ndarray] = []

    def allocate(self, num_bytes: int) -> int:
        self.num_allocations += 1
        return int(self.allocate_pinned(num_bytes).ctypes.data)

    def allocate_pinned(self, num_bytes: int) -> np.ndarray:
        memory = np.zeros(num_bytes + ALIGNMENT, np.uint8)
        self._memory.append(memory)
        start = -memory.ctypes.data % ALIGNMENT
        return memory[start : start + num_bytes]

    def open_stream(self) -> LateStream:
        self.streams.append(LateStream())
        return self.streams[-1]

    def load(self, plan: bytes) -> OnnxProgram:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        return OnnxProgram(onnxruntime.InferenceSession(plan, options, providers=["CPUExecutionProvider"]))

    def close(self) -> None:
        self.closed = True


def on_the_cpu(
    folder: ModelFolder, *, num_slots: int, max_length: int, prefill_tokens: int = 32, device: OnnxDevice | None = None
) -> TensorrtEngine:
    """The engine of a TensorRT folder; this device's plans are graphs with their weights inside."""
    return engine_on(
        device or OnnxDevice(), folder, num_slots=num_slots, max_length=max_length, prefill_tokens=prefill_tokens
    )


def engine_on(
    device: Device, folder: ModelFolder, *, num_slots: int, max_length: int, prefill_tokens: int = 32
) -> TensorrtEngine:
    """Return the engine on a device whose plans are graphs."""
    manifest = folder.manifest
    return TensorrtEngine(
        folder,
        device,
        decoder=onnx.load(folder.graph_path).SerializeToString(),
        sampler=sampler_for(manifest.architecture.vocab_size),
        shapes=PlanShapes(
            num_slots=num_slots, capacity=manifest.max_length, prefill_rows=num_slots, prefill_tokens=prefill_tokens
        ),
        max_length=max_length,
        name="tensorrt",
    )
