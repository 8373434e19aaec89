"""The layer over CUDA and TensorRT calls them as they are documented. No GPU: both are emulated on the CPU."""

import importlib
import inspect
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx_bindings

from shared.errors import EngineError
from shared.model.folder import ModelFolder
from tests.support.models import cuda_emulation
from tests.support.models.cuda_emulation import Cuda, TensorRT
from tests.support.models.onnx_device import engine_on, on_the_cpu
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling

NUM_SLOTS = 5
MAX_LENGTH = 96
SAMPLINGS = (Sampling(), Sampling(temperature=0.8, top_p=0.7, seed=3), Sampling(temperature=1.3, seed=5))


@pytest.fixture
def cuda() -> Cuda:
    return Cuda()


@pytest.fixture
def layer(cuda: Cuda, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    """Import `workers.engine.tensorrt.cuda` over the emulation, even if the real libraries are installed."""
    bindings = SimpleNamespace(runtime=cuda)
    monkeypatch.setitem(sys.modules, "cuda", SimpleNamespace(bindings=bindings))
    monkeypatch.setitem(sys.modules, "cuda.bindings", bindings)
    name = "workers.engine.tensorrt.cuda"
    monkeypatch.delitem(sys.modules, name, raising=False)
    yield importlib.import_module(name)
    del sys.modules[name]


@pytest.fixture
def device(layer: ModuleType, cuda: Cuda) -> Any:
    return layer.CudaDevice(TensorRT(cuda))


def answers(engine: Engine) -> list[Any]:
    """Tokens and KV of a batch that is prefilled, decoded, moved, exported and imported."""
    chunks = [
        PrefillChunk(slot=slot, past=0, token_ids=list(range(5 + slot, 35)), sampling=sampling)
        for slot, sampling in enumerate(SAMPLINGS)
    ]
    tokens = engine.prefill(chunks)
    seen: list[Any] = [tokens]
    for step in range(4):
        rows = [
            DecodeRow(slot=slot, past=30 - slot + step, token_id=tokens[slot] or 0, sampling=sampling)
            for slot, sampling in enumerate(SAMPLINGS)
        ]
        tokens = [*engine.decode(rows)]
        seen.append(tokens)
    engine.move(source=0, target=4, length=30)
    values = engine.export_kv(slot=4, start=3, stop=30)
    engine.import_kv(slot=3, start=40, values=values)
    return [*seen, values.tobytes(), engine.export_kv(slot=3, start=40, stop=67).tobytes()]


def test_it_computes_what_the_other_device_computes(slots_folder: ModelFolder, device: Any, cuda: Cuda) -> None:
    engine = engine_on(device, slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH)
    assert answers(engine) == answers(on_the_cpu(slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH))
    assert cuda.launches == 4  # every decode step is one launch
    taken = cuda.live
    answers(engine)
    assert cuda.live == taken
    engine.close()
    engine.close()
    assert cuda.live == 0


def test_where_nothing_can_be_recorded_steps_are_enqueued(slots_folder: ModelFolder, device: Any, cuda: Cuda) -> None:
    cuda.fails = "cudaStreamEndCapture"
    engine = engine_on(device, slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH)
    assert answers(engine) == answers(on_the_cpu(slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH))
    assert cuda.launches == 0


def test_a_kernel_that_fails_while_it_is_recorded_ends_the_capture(device: Any, cuda: Cuda) -> None:
    stream = device.open_stream()

    def fails() -> None:
        raise EngineError("TensorRT failed")

    assert stream.capture(fails) is None
    stream.synchronize()


@pytest.mark.parametrize(
    ("fails", "said"),
    [
        ("cudaMalloc", "CUDA failed (cudaErrorMemoryAllocation: as was asked for); restart the worker"),
        ("create_execution_context", "TensorRT cannot create an execution (no reason given); give it more memory"),
        ("execute_async_v3", "TensorRT failed (a kernel failed); restart the worker"),
        ("location", "TensorRT requires token_ids in host memory; use another version"),
    ],
)
def test_a_failure_while_loading_is_one_line(
    slots_folder: ModelFolder, device: Any, cuda: Cuda, fails: str, said: str
) -> None:
    cuda.fails = fails
    with pytest.raises(EngineError) as failure:
        engine_on(device, slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH)
    assert str(failure.value) == said
    device.close()
    assert cuda.live == 0


def test_a_failure_in_a_step_is_one_line(slots_folder: ModelFolder, device: Any, cuda: Cuda) -> None:
    engine = engine_on(device, slots_folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH)
    cuda.fails = "cudaStreamSynchronize"
    with pytest.raises(EngineError, match=r"^CUDA failed \(cudaErrorInvalidValue: .*\); restart the worker$"):
        answers(engine)


def test_a_plan_that_does_not_load_is_one_line(device: Any) -> None:
    with pytest.raises(EngineError, match="TensorRT cannot load the plan"):
        device.load(b"")


def test_memory_is_zeroed_and_addresses_are_as_tensorrt_wants_them(device: Any) -> None:
    """What a slot held before its first use counts for nothing, but nothing times NaN is NaN."""
    for size in (1, 1_000):
        address = device.allocate(size)
        assert address % 256 == 0
        assert not cuda_emulation.bytes_at(address, size).any()
    assert not np.any(device.allocate_pinned(1_000))


@pytest.mark.parametrize("name", ["ICudaEngine", "IExecutionContext"])
def test_the_emulation_has_no_call_that_tensorrt_lacks(name: str) -> None:
    """Names and numbers of arguments, as TensorRT's own bindings have them."""
    real = getattr(tensorrt_rtx_bindings, name)
    helpers = {"rest"}
    for called, emulated in inspect.getmembers(getattr(cuda_emulation, name)):
        if called.startswith("_") or called in helpers:
            continue
        assert hasattr(real, called), f"TensorRT's {name} has no {called}"
        if inspect.isfunction(emulated):
            signatures = [line for line in real.__dict__[called].__doc__.splitlines() if f"{called}(self" in line]
            assert any(line.count(":") - 1 == len(inspect.signature(emulated).parameters) - 1 for line in signatures)
