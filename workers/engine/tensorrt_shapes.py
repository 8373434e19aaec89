"""What settings and a model's folder ask of TensorRT's plans, and of the GPU's memory."""

from typing import Final

from shared.errors import SettingsError
from shared.model_folder import ModelFolder
from shared.settings import PREFIX, WorkerSettings
from workers.engine.tensorrt_plans import PlanShapes
from workers.memory_plan import MemoryPlan, plan_memory

_MAX_PREFILL_ROWS: Final = 8
_KV_ITEMSIZE: Final = 2


def plan_shapes(worker: WorkerSettings, folder: ModelFolder) -> PlanShapes:
    """What plans are built for. Raises `SettingsError` where the folder's graph is not TensorRT's, or its slots are too
    short."""
    capacity = folder.manifest.max_length
    if folder.manifest.dialect != "tensorrt" or capacity is None:
        raise SettingsError(
            f"{PREFIX}MODEL__DIR={folder.path}: its graph is not for TensorRT; "
            "run: replyline model prepare --precision fp16"
        )
    if worker.max_length >= capacity:
        raise SettingsError(
            f"{PREFIX}WORKER__MAX_LENGTH={worker.max_length}: the graph's slots hold {capacity - 1} tokens; lower it, "
            f"or run: replyline model prepare --precision fp16 --max-length {worker.max_length}"
        )
    return PlanShapes(
        num_slots=worker.slots,
        capacity=capacity,
        prefill_rows=min(_MAX_PREFILL_ROWS, worker.slots),
        prefill_tokens=min(worker.prefill_chunk_tokens, capacity - 1),
    )


def device_memory_plan(folder: ModelFolder, shapes: PlanShapes, available_bytes: int) -> MemoryPlan:
    return plan_memory(
        folder.manifest,
        num_slots=shapes.num_slots,
        slot_tokens=shapes.capacity,
        step_tokens=shapes.prefill_rows * shapes.prefill_tokens,
        kv_itemsize=_KV_ITEMSIZE,
        available_bytes=available_bytes,
    )
