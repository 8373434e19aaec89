"""Load a torch engine from the settings and a model's folder: find the device, plan its memory, create the engine.

torch is imported only when it is needed, since it may not be installed.
"""

from typing import Literal

from shared.errors import SettingsError
from shared.model.folder import ModelFolder
from shared.process.extras import install_command
from shared.process.hardware import usable_cores
from shared.settings import PREFIX, Settings, WorkerSettings
from workers.engine import Engine
from workers.engine.device.reserve import tell_reserve
from workers.engine.kv_layout import kv_dtype
from workers.engine.memory_plan import MemoryPlan, fit_slots, plan_memory
from workers.engine.tensorrt.probe import DeviceFacts
from workers.engine.torch.slots import MAX_PREFILL_ROWS, PRECISIONS, capacity_for
from workers.engine.unusable import Unusable

_INSTALL = f"run: {install_command('torch')}"


def find_gpu(wanted: Literal["auto", "cuda", "cpu"]) -> DeviceFacts | Unusable | None:
    """Return the first GPU, None for the CPU, or why torch does not work as configured.

    Importing torch takes seconds.
    """
    try:
        import torch
    except (ImportError, OSError) as error:  # OSError: a library of torch cannot be loaded
        lacking = isinstance(error, ModuleNotFoundError) and error.name == "torch"
        return Unusable(f"torch {'is not installed' if lacking else f'cannot be imported ({error})'}; {_INSTALL}")
    if wanted == "cpu":
        return None
    if not torch.cuda.is_available():
        without = "was built without CUDA" if torch.version.cuda is None else "finds no CUDA driver or no GPU"
        reason = f"torch {torch.__version__} {without}; look at nvidia-smi, or set {PREFIX}WORKER__TORCH_DEVICE=cpu"
        return None if wanted == "auto" else Unusable(reason)
    free_bytes, total_bytes = torch.cuda.mem_get_info(0)
    major, minor = torch.cuda.get_device_capability(0)
    return DeviceFacts(
        device=torch.cuda.get_device_name(0),
        sm=f"sm_{major}{minor}",
        free_bytes=free_bytes,
        total_bytes=total_bytes,
        version=f"torch {torch.__version__}",
    )


def load_torch(settings: Settings, folder: ModelFolder) -> Engine | Unusable:
    """Return an engine on `worker.torch_device`, or why it cannot be used.

    Raises:
        SettingsError: the folder's precision or the memory does not fit.
        ModelError: its weights cannot be read.
        EngineError: the device fails.
    """
    worker = settings.worker
    _refuse_other_precisions(folder)
    gpu = find_gpu(worker.torch_device)
    if isinstance(gpu, Unusable):
        return gpu
    memory = None if gpu is None else _fitting_plan(worker, folder, gpu)
    try:
        import torch

        from workers.engine.torch.device import TorchDevice
        from workers.engine.torch.engine import TorchEngine
        from workers.engine.torch.weights import load_weights
    except ImportError as error:  # onnx, which reads the folder
        return Unusable(f"the torch engine is not installed ({error.name}); {_INSTALL}")
    torch.set_num_threads(worker.threads or usable_cores())
    device = TorchDevice("cpu" if gpu is None else "cuda")
    try:
        engine = TorchEngine(
            folder.manifest,
            load_weights(folder, device.device),
            device,
            num_slots=worker.slots_without_gpu if memory is None else memory.num_slots,
            max_length=worker.max_length,
            prefill_tokens=worker.prefill_chunk_tokens,
        )
        if gpu is not None and memory is not None:
            tell_reserve(memory, gpu.device, device.free_bytes())
    except BaseException:
        device.close()
        raise
    return engine


def torch_memory_plan(worker: WorkerSettings, folder: ModelFolder, available_bytes: int) -> MemoryPlan:
    """Plan torch's memory.

    Raises:
        SettingsError: torch does not support the folder's precision.
    """
    _refuse_other_precisions(folder)
    return fit_slots(
        worker,
        lambda num_slots: plan_memory(
            folder.manifest,
            num_slots=num_slots,
            slot_tokens=capacity_for(worker.max_length),
            step_tokens=min(MAX_PREFILL_ROWS, num_slots) * worker.prefill_chunk_tokens,
            kv_itemsize=kv_dtype(folder.manifest).itemsize,
            available_bytes=available_bytes,
        ),
    )


def _fitting_plan(worker: WorkerSettings, folder: ModelFolder, gpu: DeviceFacts) -> MemoryPlan:
    """Return the plan that fits.

    Raises:
        SettingsError: the GPU has too little memory.
    """
    memory = torch_memory_plan(worker, folder, gpu.share_bytes(worker.gpu_share))
    if not memory.fits:
        raise SettingsError(f"{PREFIX}WORKER__SLOTS={worker.slots}: {gpu.device} {memory.describe()}; {memory.remedy}")
    return memory


def _refuse_other_precisions(folder: ModelFolder) -> None:
    precision = folder.manifest.precision
    if precision not in PRECISIONS:
        raise SettingsError(
            f"{PREFIX}MODEL__DIR={folder.path}: torch computes {', '.join(PRECISIONS)}, not {precision}; "
            "run: replyline model prepare --precision bf16"
        )
