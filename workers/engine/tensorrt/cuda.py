"""`Device` on a GPU: memory, streams and CUDA graphs with CUDA's runtime, programs with TensorRT's.

https://docs.nvidia.com/cuda/cuda-runtime-api, https://nvidia.github.io/cuda-python/cuda-bindings/latest
"""

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np
from cuda.bindings import runtime as cuda
from numpy.typing import NDArray

from shared.errors import EngineError
from shared.telemetry.logs import get_logger
from workers.engine import DeviceKind
from workers.engine.device import Execution, Extent, Stream, StridedBlock
from workers.engine.tensorrt.build import make_log


def checked(result: tuple[Any, ...]) -> Any:
    """Return the results of a call of CUDA's runtime without its status.

    Raises:
        EngineError: the status is an error.
    """
    status, *values = result
    if status != cuda.cudaError_t.cudaSuccess:
        _, name = cuda.cudaGetErrorName(status)
        _, said = cuda.cudaGetErrorString(status)
        raise EngineError(f"CUDA failed ({name.decode()}: {said.decode()}); restart the worker")
    return values[0] if len(values) == 1 else tuple(values)


LayerTime = Callable[[str, float], None]
"""Called with a layer's name and its duration in ms."""


class CudaExecution:
    def __init__(self, context: Any, inputs: frozenset[str], log: Any) -> None:
        self._context = context
        self._inputs = inputs
        self._log = log

    def bind(self, name: str, address: int, shape: tuple[int, ...]) -> None:
        if name in self._inputs and not self._context.set_input_shape(name, shape):
            raise EngineError(f"TensorRT refuses {name} of shape {shape} ({self._log.last_error}); rebuild its plan")
        if not self._context.set_tensor_address(name, address):
            raise EngineError(f"TensorRT has no place for {name} ({self._log.last_error}); rebuild its plan")

    def enqueue(self, stream: int) -> None:
        if not self._context.execute_async_v3(stream):
            raise EngineError(f"TensorRT failed ({self._log.last_error}); restart the worker")


class CudaProgram:
    """A TensorRT engine. Its executions may share a profile, which TensorRT allows since version 10."""

    def __init__(self, library: Any, engine: Any, log: Any, clock: Any | None) -> None:
        names = [engine.get_tensor_name(at) for at in range(engine.num_io_tensors)]
        elsewhere = [name for name in names if engine.get_tensor_location(name) != library.TensorLocation.DEVICE]
        if elsewhere:
            raise EngineError(f"TensorRT requires {elsewhere[0]} in host memory; use another version")
        self._inputs = frozenset(name for name in names if engine.get_tensor_mode(name) == library.TensorIOMode.INPUT)
        self._library = library
        self._engine = engine
        self._log = log
        self._clock = clock

    @property
    def workspace_bytes(self) -> int:
        return int(self._engine.device_memory_size_v2)

    def open(self, profile: int, workspace: int, *, one_shape: bool) -> CudaExecution:
        context = self._engine.create_execution_context(self._how(one_shape=one_shape))
        if context is None:
            raise EngineError(f"TensorRT cannot create an execution ({self._log.last_error}); give it more memory")
        context.set_device_memory(workspace, self.workspace_bytes)
        stream = checked(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        try:
            if not context.set_optimization_profile_async(profile, int(stream)):
                raise EngineError(f"the plan has no profile {profile} ({self._log.last_error}); rebuild it")
            checked(cuda.cudaStreamSynchronize(stream))
        finally:
            checked(cuda.cudaStreamDestroy(stream))
        if self._clock is not None:
            context.profiler = self._clock
        return CudaExecution(context, self._inputs, self._log)

    def _how(self, *, one_shape: bool) -> Any:
        """Return how to allocate its memory: by the caller.

        TensorRT for RTX compiles kernels for a shape some time after its first use; with a single shape, before it is
        recorded.
        """
        memory = self._library.ExecutionContextAllocationStrategy.USER_MANAGED
        specialisation = getattr(self._library, "DynamicShapesKernelSpecializationStrategy", None)
        if specialisation is None:
            return memory
        config = self._engine.create_runtime_config()
        config.set_execution_context_allocation_strategy(memory)
        if one_shape:
            config.dynamic_shapes_kernel_specialization_strategy = specialisation.EAGER
        return config


class CudaStream:
    def __init__(self, *, records: bool) -> None:
        self._records = records
        self._stream = checked(cuda.cudaStreamCreateWithFlags(cuda.cudaStreamNonBlocking))
        self._event = checked(cuda.cudaEventCreateWithFlags(cuda.cudaEventDisableTiming))
        self._replays: list[Any] = []

    def copy(self, target: int, source: int, num_bytes: int) -> None:
        kind = cuda.cudaMemcpyKind.cudaMemcpyDefault
        checked(cuda.cudaMemcpyAsync(target, source, num_bytes, kind, self._stream))

    def copy_block(self, target: StridedBlock, source: StridedBlock, extent: Extent) -> None:
        copied = cuda.cudaMemcpy3DParms()
        copied.srcPtr, copied.dstPtr = _pitched(source), _pitched(target)
        whole = cuda.cudaExtent()
        whole.width, whole.height, whole.depth = extent.width, extent.rows, extent.slices
        copied.extent = whole
        copied.kind = cuda.cudaMemcpyKind.cudaMemcpyDefault
        checked(cuda.cudaMemcpy3DAsync(copied, self._stream))

    def run(self, execution: Execution) -> None:
        assert isinstance(execution, CudaExecution)
        execution.enqueue(int(self._stream))

    def capture(self, work: Callable[[], None]) -> Any:
        if not self._records:
            return None
        mode = cuda.cudaStreamCaptureMode.cudaStreamCaptureModeThreadLocal
        checked(cuda.cudaStreamBeginCapture(self._stream, mode))
        failure: EngineError | None = None
        try:
            work()
        except EngineError as error:
            failure = error
        try:
            graph = checked(cuda.cudaStreamEndCapture(self._stream))
            if failure is not None:
                raise failure
            replay = checked(cuda.cudaGraphInstantiate(graph, 0))
        except EngineError as error:
            cuda.cudaGetLastError()  # otherwise the next call would report it again
            get_logger().warning("no_cuda_graph", reason=str(error))
            return None
        checked(cuda.cudaGraphDestroy(graph))
        self._replays.append(replay)
        return replay

    def launch(self, replay: Any) -> None:
        checked(cuda.cudaGraphLaunch(replay, self._stream))

    def wait_for(self, other: Stream) -> None:
        assert isinstance(other, CudaStream)
        checked(cuda.cudaStreamWaitEvent(self._stream, other.record(), 0))

    def record(self) -> Any:
        """Return an event that occurs when all work enqueued here so far has ended."""
        checked(cuda.cudaEventRecord(self._event, self._stream))
        return self._event

    def synchronize(self) -> None:
        checked(cuda.cudaStreamSynchronize(self._stream))

    def close(self) -> None:
        for replay in self._replays:
            cuda.cudaGraphExecDestroy(replay)
        cuda.cudaEventDestroy(self._event)
        cuda.cudaStreamDestroy(self._stream)


class CudaDevice:
    """The first GPU that the process sees (`CUDA_VISIBLE_DEVICES`).

    With `layer_time`, TensorRT reports each layer's duration once its work has ended; nothing is recorded then, because
    a CUDA graph has no layers.
    """

    def __init__(self, library: Any, layer_time: LayerTime | None = None) -> None:
        self.kind: DeviceKind = "gpu"
        self._library = library
        self._clock = None if layer_time is None else _make_clock(library, layer_time)
        self._log = make_log(library)
        self._runtime = library.Runtime(self._log)
        self._device_memory: list[int] = []
        self._host_memory: list[int] = []
        self._streams: list[CudaStream] = []

    def allocate(self, num_bytes: int) -> int:
        address = int(checked(cuda.cudaMalloc(max(num_bytes, 1))))
        self._device_memory.append(address)
        checked(cuda.cudaMemset(address, 0, num_bytes))
        checked(cuda.cudaDeviceSynchronize())  # the streams here do not wait for the default stream
        return address

    def allocate_pinned(self, num_bytes: int) -> NDArray[np.uint8]:
        address = int(checked(cuda.cudaHostAlloc(max(num_bytes, 1), cuda.cudaHostAllocDefault)))
        self._host_memory.append(address)
        memory: NDArray[np.uint8] = np.ctypeslib.as_array((ctypes.c_uint8 * num_bytes).from_address(address))
        memory[...] = 0
        return memory

    def open_stream(self) -> CudaStream:
        stream = CudaStream(records=self._clock is None)
        self._streams.append(stream)
        return stream

    def free_bytes(self) -> int:
        """Return the GPU's free memory in bytes."""
        free_bytes, _ = checked(cuda.cudaMemGetInfo())
        return int(free_bytes)

    def load(self, plan: bytes) -> CudaProgram:
        engine = self._runtime.deserialize_cuda_engine(plan)
        if engine is None:
            raise EngineError(f"TensorRT cannot load the plan ({self._log.last_error}); delete it and build it again")
        return CudaProgram(self._library, engine, self._log, self._clock)

    def close(self) -> None:
        if self._streams:
            cuda.cudaDeviceSynchronize()
        for stream in self._streams:
            stream.close()
        for address in self._device_memory:
            cuda.cudaFree(address)
        for address in self._host_memory:
            cuda.cudaFreeHost(address)
        self._streams, self._device_memory, self._host_memory = [], [], []


def _make_clock(library: Any, layer_time: LayerTime) -> Any:
    class Clock(library.IProfiler):  # type: ignore[misc]
        def __init__(self) -> None:
            library.IProfiler.__init__(self)

        def report_layer_time(self, layer_name: str, ms: float) -> None:
            layer_time(layer_name, ms)

    return Clock()


def _pitched(block: StridedBlock) -> Any:
    pointer = cuda.cudaPitchedPtr()
    pointer.ptr, pointer.pitch, pointer.xsize, pointer.ysize = block.address, block.pitch, block.pitch, block.rows
    return pointer
