"""Compute what settings and a model's folder require of TensorRT plans and of the GPU's memory."""

from typing import Final

from shared.errors import SettingsError
from shared.model.folder import Manifest, ModelFolder
from shared.settings import PREFIX, WorkerSettings
from workers.engine.memory_plan import MemoryPlan, fit_slots, plan_memory
from workers.engine.tensorrt.plans import PlanShapes
from workers.engine.tensorrt.probe import DeviceFacts

_MAX_PREFILL_ROWS: Final = 8
_KV_ITEMSIZE: Final = 2
_OLDEST_FP8_SM: Final = 89
_QUANTIZE_INT8: Final = "run: replyline optimize quantize --mlp int8 --calibration FILE --out FOLDER"
_PREPARE: Final = "replyline model prepare --precision fp16"


def plan_shapes(worker: WorkerSettings, folder: ModelFolder, num_slots: int) -> PlanShapes:
    """Return the shapes for which plans are built, with this many slots.

    Raises:
        SettingsError: the folder's graph is not for TensorRT, or its slots are too short.
    """
    capacity = folder.manifest.max_length
    if folder.manifest.dialect == "cpu" or capacity is None:
        raise SettingsError(f"{PREFIX}MODEL__DIR={folder.path}: its graph is not for TensorRT; run: {_PREPARE}")
    if worker.max_length >= capacity:
        raise SettingsError(
            f"{PREFIX}WORKER__MAX_LENGTH={worker.max_length}: the graph's slots hold {capacity - 1} tokens; lower it, "
            f"or run: {_PREPARE} --max-length {worker.max_length}"
        )
    return PlanShapes(
        num_slots=num_slots,
        capacity=capacity,
        prefill_rows=min(_MAX_PREFILL_ROWS, num_slots),
        prefill_tokens=min(worker.prefill_chunk_tokens, capacity - 1),
    )


def fit_shapes(worker: WorkerSettings, folder: ModelFolder, gpu: DeviceFacts) -> tuple[PlanShapes, MemoryPlan]:
    """Return the shapes for this GPU and their memory plan, which may not fit if the number of slots is configured."""
    available_bytes = gpu.share_bytes(worker.gpu_share)
    memory = fit_slots(
        worker, lambda num: device_memory_plan(folder, plan_shapes(worker, folder, num), available_bytes)
    )
    return plan_shapes(worker, folder, memory.num_slots), memory


def unmet(manifest: Manifest, sm: str | None) -> str | None:
    """Return what a GPU of compute capability `sm` (None: any) lacks to run the folder's graph, and what to do; else
    None."""
    if manifest.precision == "fp8-mlp" and sm is not None and int(sm.removeprefix("sm_")) < _OLDEST_FP8_SM:
        return f"the model's MLP is FP8, for sm_{_OLDEST_FP8_SM} and later, the GPU is {sm}; {_QUANTIZE_INT8}"
    return None


def device_memory_plan(folder: ModelFolder, shapes: PlanShapes, available_bytes: int) -> MemoryPlan:
    return plan_memory(
        folder.manifest,
        num_slots=shapes.num_slots,
        slot_tokens=shapes.capacity,
        step_tokens=shapes.prefill_rows * shapes.prefill_tokens,
        kv_itemsize=_KV_ITEMSIZE,
        available_bytes=available_bytes,
    )
