"""Every engine that this machine can run, on the same tiny model."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from shared.settings import Settings
from tests.support.models.native_library import native_library
from tests.support.models.onnx_device import on_the_cpu
from workers.engine import Engine
from workers.engine.fake import FakeEngine
from workers.engine.native.engine import NativeEngine
from workers.engine.onnx import OnnxEngine
from workers.engine.tensorrt.load_tensorrt import load_tensorrt
from workers.engine.tensorrt.probe import DeviceFacts, probe
from workers.engine.torch.load_torch import find_gpu, load_torch
from workers.engine.unusable import Unusable

# tensorrt-on-cpu is the GPU engine on a device that runs its graphs on the CPU; on a GPU if there is one.
FOUND = {library: probe(library) for library in ("tensorrt", "tensorrt-rtx")}
GPU_ENGINES = {f"{library}-on-gpu": library for library, found in FOUND.items() if isinstance(found, DeviceFacts)}
# torch is not in the tests' environment: `make test-torch` runs these tests in a separate one. In fp16 and bf16 some
# tokens depend on the batch; tests/pytorch measures how many.
TORCH_GPU = find_gpu("auto")
TORCH_ENGINES = () if isinstance(TORCH_GPU, Unusable) else ("torch-fp32-cpu",)
if isinstance(TORCH_GPU, DeviceFacts):
    TORCH_ENGINES += ("torch-fp32-cuda",)
NATIVE_ENGINES = [f"native-{kernel}" for kernel in native_library().kernels]

NUM_SLOTS = 6
MAX_LENGTH = 96


@dataclass(frozen=True)
class Case:
    """Two instances of one engine: the second plays the worker that takes over."""

    engine: Engine
    other: Engine


@pytest.fixture(
    scope="module",
    params=[
        "fake",
        "onnx-int8",
        "onnx-fp32",
        *NATIVE_ENGINES,
        "tensorrt-on-cpu",
        *GPU_ENGINES,
        *TORCH_ENGINES,
    ],
)
def case(request: pytest.FixtureRequest, tiny_source: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Case]:
    make: Callable[[], Engine]
    if request.param == "fake":
        make = _fake
    elif request.param in NATIVE_ENGINES:
        folder = prepare_model(tmp_path_factory.mktemp("models"), "int8", source=tiny_source)
        make = lambda: _native(folder, request.param.removeprefix("native-"))  # noqa: E731
    elif request.param in TORCH_ENGINES:
        _, precision, device = request.param.split("-")
        folder = prepare_model(tmp_path_factory.mktemp("models"), precision, source=tiny_source, max_length=MAX_LENGTH)
        make = lambda: _torch(folder, device)  # noqa: E731
    elif request.param.startswith("tensorrt"):
        models = tmp_path_factory.mktemp("models")
        slots = prepare_model(models, "fp16", source=tiny_source, max_length=MAX_LENGTH)
        if request.param.endswith("-on-cpu"):
            make = lambda: on_the_cpu(slots, num_slots=NUM_SLOTS, max_length=MAX_LENGTH)  # noqa: E731
        else:
            make = lambda: _tensorrt(GPU_ENGINES[request.param], slots)  # noqa: E731
    else:
        precision = request.param.removeprefix("onnx-")
        folder = prepare_model(tmp_path_factory.mktemp("models"), precision, source=tiny_source)
        make = lambda: _onnx(folder)  # noqa: E731
    case = Case(make(), make())
    yield case
    case.engine.close()
    case.other.close()


def _fake() -> Engine:
    return FakeEngine(num_slots=NUM_SLOTS, max_length=MAX_LENGTH, max_prefill_rows=NUM_SLOTS, mixes=True)


def _onnx(folder: ModelFolder) -> Engine:
    return OnnxEngine(
        folder, num_slots=NUM_SLOTS, max_length=MAX_LENGTH, threads=1, spinning=False, max_prefill_rows=NUM_SLOTS
    )


def _native(folder: ModelFolder, kernel: str) -> Engine:
    library = native_library(kernel)
    return NativeEngine(
        folder, library, num_slots=NUM_SLOTS, max_length=MAX_LENGTH, threads=2, max_prefill_rows=NUM_SLOTS
    )


def _tensorrt(library: str, folder: ModelFolder) -> Engine:
    worker = {"engine": library, "slots": NUM_SLOTS, "max_length": MAX_LENGTH, "prefill_chunk_tokens": 32}
    values = {"model": {"dir": folder.path}, "worker": {**worker, "cache_dir": folder.path.parent}}
    engine = load_tensorrt(Settings.model_validate(values), folder)
    assert not isinstance(engine, Unusable), engine.reason
    return engine


def _torch(folder: ModelFolder, device: str) -> Engine:
    worker = {"engine": "torch", "slots": NUM_SLOTS, "max_length": MAX_LENGTH, "threads": 1, "torch_device": device}
    engine = load_torch(Settings.model_validate({"model": {"dir": folder.path}, "worker": worker}), folder)
    assert not isinstance(engine, Unusable), engine.reason
    return engine
