"""The functions of CUDA's runtime and TensorRT that `workers.engine.tensorrt.cuda` calls, on the CPU: names, arguments,
results.

It follows the documentation and was not compared with a GPU. Memory is the host's; streams run their work immediately
or, while captured, record it; programs are graphs that ONNX Runtime runs.
"""
# ruff: noqa: N802, N815 - the names are CUDA's

import enum
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.support.models.onnx_device import OnnxDevice, bytes_at, rows_at
from workers.engine.device import Extent, StridedBlock


class Status(enum.IntEnum):
    cudaSuccess = 0
    cudaErrorInvalidValue = 1
    cudaErrorMemoryAllocation = 2
    cudaErrorStreamCaptureUnsupported = 900


class Stream:
    """A handle of CUDA's: TensorRT takes it as a number."""

    def __init__(self, number: int) -> None:
        self._number = number
        self.recorded: list[Callable[[], object]] | None = None

    def __int__(self) -> int:
        return self._number

    def enqueue(self, work: Callable[[], object]) -> None:
        if self.recorded is None:
            work()
        else:
            self.recorded.append(work)


class Cuda:
    """`cuda.bindings.runtime`. `live` counts allocations that are not freed; `fails` names a call that fails."""

    cudaError_t = Status
    cudaStreamNonBlocking = 1
    cudaEventDisableTiming = 2
    cudaHostAllocDefault = 0
    cudaMemcpyKind = SimpleNamespace(cudaMemcpyDefault=4)
    cudaStreamCaptureMode = SimpleNamespace(cudaStreamCaptureModeThreadLocal=1)
    cudaMemcpy3DParms = SimpleNamespace
    cudaPitchedPtr = SimpleNamespace
    cudaExtent = SimpleNamespace

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.memory: dict[int, np.ndarray] = {}
        self.live = 0
        self.launches = 0
        self.fails = ""
        self.free_bytes = 1 << 30

    def cudaMemGetInfo(self) -> tuple[Status, int, int]:
        return Status.cudaSuccess, self.free_bytes, 1 << 31

    def cudaGetErrorName(self, status: Status) -> tuple[Status, bytes]:
        return Status.cudaSuccess, status.name.encode()

    def cudaGetErrorString(self, status: Status) -> tuple[Status, bytes]:
        return Status.cudaSuccess, b"as was asked for"

    def cudaGetLastError(self) -> tuple[Status]:
        return (Status.cudaSuccess,)

    def cudaMalloc(self, size: int) -> tuple[Status, int]:
        if self.fails == "cudaMalloc":
            return Status.cudaErrorMemoryAllocation, 0
        memory = np.full(size + 256, 0xAB, np.uint8)  # fill: code that needs zeros must write them
        address = memory.ctypes.data + -memory.ctypes.data % 256
        self.memory[address] = memory
        self.live += 1
        return Status.cudaSuccess, address

    def cudaHostAlloc(self, size: int, flags: int) -> tuple[Status, int]:
        assert flags == self.cudaHostAllocDefault
        return self.cudaMalloc(size)

    def cudaFree(self, address: int) -> tuple[Status]:
        del self.memory[address]
        self.live -= 1
        return (Status.cudaSuccess,)

    cudaFreeHost = cudaFree

    def cudaMemset(self, address: int, value: int, size: int) -> tuple[Status]:
        bytes_at(address, size)[...] = value
        return (Status.cudaSuccess,)

    def cudaDeviceSynchronize(self) -> tuple[Status]:
        return (Status.cudaSuccess,)

    def cudaStreamCreateWithFlags(self, flags: int) -> tuple[Status, Stream]:
        assert flags == self.cudaStreamNonBlocking
        stream = Stream(1_000 + len(self.streams))
        self.streams[int(stream)] = stream
        self.live += 1
        return Status.cudaSuccess, stream

    def cudaStreamDestroy(self, stream: Stream) -> tuple[Status]:
        assert self.streams[int(stream)] is stream
        self.live -= 1
        return (Status.cudaSuccess,)

    def cudaStreamSynchronize(self, stream: Stream) -> tuple[Status]:
        assert stream.recorded is None, "a stream is waited for while it is captured"
        return (Status.cudaErrorInvalidValue if self.fails == "cudaStreamSynchronize" else Status.cudaSuccess,)

    def cudaEventCreateWithFlags(self, flags: int) -> tuple[Status, object]:
        assert flags == self.cudaEventDisableTiming
        self.live += 1
        return Status.cudaSuccess, object()

    def cudaEventDestroy(self, _event: object) -> tuple[Status]:
        self.live -= 1
        return (Status.cudaSuccess,)

    def cudaEventRecord(self, _event: object, stream: Stream) -> tuple[Status]:
        assert stream.recorded is None
        return (Status.cudaSuccess,)

    def cudaStreamWaitEvent(self, stream: Stream, _event: object, flags: int) -> tuple[Status]:
        assert (flags, stream.recorded) == (0, None)
        return (Status.cudaSuccess,)

    def cudaMemcpyAsync(self, target: int, source: int, size: int, kind: int, stream: Stream) -> tuple[Status]:
        assert kind == self.cudaMemcpyKind.cudaMemcpyDefault
        stream.enqueue(lambda: np.copyto(bytes_at(target, size), bytes_at(source, size)))
        return (Status.cudaSuccess,)

    def cudaMemcpy3DAsync(self, copied: Any, stream: Stream) -> tuple[Status]:
        assert copied.kind == self.cudaMemcpyKind.cudaMemcpyDefault
        extent = Extent(copied.extent.width, copied.extent.height, copied.extent.depth)
        target, source = (StridedBlock(at.ptr, at.pitch, at.ysize) for at in (copied.dstPtr, copied.srcPtr))
        for block in (target, source):
            if block.pitch < extent.width or block.rows < extent.rows:
                return (Status.cudaErrorInvalidValue,)
        stream.enqueue(lambda: np.copyto(rows_at(target, extent), rows_at(source, extent)))
        return (Status.cudaSuccess,)

    def cudaStreamBeginCapture(self, stream: Stream, mode: int) -> tuple[Status]:
        assert mode == self.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        stream.recorded = []
        return (Status.cudaSuccess,)

    def cudaStreamEndCapture(self, stream: Stream) -> tuple[Status, object]:
        recorded, stream.recorded = stream.recorded, None
        if self.fails == "cudaStreamEndCapture":
            return Status.cudaErrorStreamCaptureUnsupported, None
        self.live += 1
        return Status.cudaSuccess, recorded

    def cudaGraphInstantiate(self, graph: object, flags: int) -> tuple[Status, object]:
        assert flags == 0
        self.live += 1
        return Status.cudaSuccess, graph

    def cudaGraphDestroy(self, _graph: object) -> tuple[Status]:
        self.live -= 1
        return (Status.cudaSuccess,)

    cudaGraphExecDestroy = cudaGraphDestroy

    def cudaGraphLaunch(self, graph: list[Callable[[], object]], stream: Stream) -> tuple[Status]:
        self.launches += 1
        for work in graph:
            stream.enqueue(work)
        return (Status.cudaSuccess,)


class ILogger:
    ERROR, INTERNAL_ERROR = 1, 0

    def log(self, severity: int, message: str) -> None:
        raise NotImplementedError


class IProfiler:
    def report_layer_time(self, layer_name: str, ms: float) -> None:
        raise NotImplementedError


class IExecutionContext:
    def __init__(self, engine: "ICudaEngine") -> None:
        self.profiler: IProfiler | None = None
        self._engine = engine
        self._execution = engine.program.open(0, 1, one_shape=False)
        self._shapes: dict[str, tuple[int, ...]] = {}
        self._addresses: dict[str, int] = {}

    def set_device_memory(self, memory: int, size: int) -> None:
        assert memory % 256 == 0
        assert size >= self._engine.device_memory_size_v2

    def set_optimization_profile_async(self, profile: int, stream: int) -> bool:
        return profile in {0, 1} and isinstance(stream, int)

    def set_input_shape(self, name: str, shape: tuple[int, ...]) -> bool:
        self._shapes[name] = shape
        return name in self._engine.inputs

    def set_tensor_address(self, name: str, address: int) -> bool:
        self._addresses[name] = address
        return name in self._engine.names

    def execute_async_v3(self, stream: int) -> bool:
        """Outputs have the shapes that TensorRT infers from the inputs'."""
        if self._engine.cuda.fails == "execute_async_v3":
            self._engine.log.log(ILogger.ERROR, "a kernel\nfailed")
            return False
        rows, tokens = self._shapes["input_ids"] if "input_ids" in self._shapes else (self._shapes["logits"][0], 1)
        for name, address in self._addresses.items():
            shape = self._shapes.get(name) or (rows, *self._engine.rest(name, tokens))
            self._execution.bind(name, address, shape)
        where = self._engine.cuda.streams[stream]
        where.enqueue(self._execution.work())
        if self.profiler is not None:
            assert where.recorded is None, "TensorRT times no layer of what is recorded"
            self.profiler.report_layer_time("layers.1.mlp.down_proj.out", 0.25)
            self.profiler.report_layer_time("__myl_AddCast", 0.5)
        return True


class ICudaEngine:
    device_memory_size_v2 = 4_096

    def __init__(self, cuda: Cuda, log: ILogger, plan: bytes) -> None:
        self.cuda, self.log = cuda, log
        self.program = OnnxDevice().load(plan)
        session = self.program.session
        self.inputs = [value.name for value in session.get_inputs()]
        self._outputs = {value.name: value.shape for value in session.get_outputs()}
        self.names = [*self.inputs, *self._outputs]
        self.num_io_tensors = len(self.names)

    def rest(self, name: str, tokens: int) -> tuple[int, ...]:
        return tuple(tokens if size == "tokens" else size for size in self._outputs[name][1:])

    def get_tensor_name(self, at: int) -> str:
        return self.names[at]

    def get_tensor_location(self, name: str) -> str:
        return "host" if self.cuda.fails == "location" and name == "token_ids" else "device"

    def get_tensor_mode(self, name: str) -> str:
        return "input" if name in self.inputs else "output"

    def create_execution_context(self, how: str) -> IExecutionContext | None:
        assert how == "user managed"
        return None if self.cuda.fails == "create_execution_context" else IExecutionContext(self)


class TensorRT:
    """The module `tensorrt`."""

    ILogger = ILogger
    IProfiler = IProfiler
    TensorIOMode = SimpleNamespace(INPUT="input")
    TensorLocation = SimpleNamespace(DEVICE="device")
    ExecutionContextAllocationStrategy = SimpleNamespace(USER_MANAGED="user managed")

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda

    def Runtime(self, log: ILogger) -> Any:
        def deserialize(plan: bytes) -> ICudaEngine | None:
            return ICudaEngine(self._cuda, log, plan) if plan else None

        return SimpleNamespace(deserialize_cuda_engine=deserialize)
