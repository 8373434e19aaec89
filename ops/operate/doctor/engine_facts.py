"""Determine how much memory the configured engine will use, and which GPU it needs. For `replyline doctor`."""

import asyncio
import os
from dataclasses import dataclass, replace

from shared.errors import ReplylineError
from shared.model.folder import ModelFolder
from shared.process.gpu import short_device
from shared.process.hardware import available_memory
from shared.settings import CPU_ENGINES, Settings, WorkerSettings
from shared.settings.credential_files import read_password
from workers.engine.memory_plan import MemoryPlan, cpu_memory_plan
from workers.engine.native.load_native import find_library, unpacked
from workers.engine.tensorrt.probe import DeviceFacts, probe
from workers.engine.tensorrt.shapes import fit_shapes, unmet
from workers.engine.torch.load_torch import find_gpu, torch_memory_plan
from workers.engine.unusable import Unusable
from workers.engine.upstream.client import Served, UpstreamClient
from workers.engine.upstream.failures import UpstreamFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class UpstreamFacts:
    """Another model server: what it serves, or why it does not answer. `model` is the model to request; empty for
    any."""

    address: str
    found: Served | UpstreamFailure
    model: str
    slots: int
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineFacts:
    """Facts about the engine.

    Attributes:
        gpu: None for an engine that needs no GPU
        memory: None if there is no model, no usable device, or its memory is unknown
        device: the environment's name for the only device that this process may use
        native: the kernel and its compiler, or why onnx is used instead
    """

    name: str
    gpu: DeviceFacts | Unusable | None = None
    device: str = ""
    memory: MemoryPlan | None = None
    native: str | Unusable | None = None
    upstreams: tuple[UpstreamFacts, ...] = ()

    @property
    def is_native(self) -> bool:
        return isinstance(self.native, str)


def engine_facts(settings: Settings) -> EngineFacts:
    """Inspect the model's manifest, the memory, and the GPU if the engine needs one."""
    name = settings.worker.engine
    elsewhere = {"torch": _torch_facts, "upstream": _upstream_facts}.get(name)
    if elsewhere is not None:
        return elsewhere(settings)
    gpu = probe(name) if name.startswith("tensorrt") else None
    try:
        folder = ModelFolder.open(settings.model.dir)
        if isinstance(gpu, DeviceFacts):
            reason = unmet(folder.manifest, gpu.sm)
            if reason is not None:
                return EngineFacts(name=name, gpu=Unusable(reason))
            _, memory = fit_shapes(settings.worker, folder, gpu)
            return EngineFacts(name=name, gpu=gpu, device=short_device(os.environ), memory=memory)
    except ReplylineError:
        return EngineFacts(name=name, gpu=gpu)
    if name not in CPU_ENGINES:
        return EngineFacts(name=name, gpu=gpu)
    native = _native(settings.worker, folder) if name == "native" else None
    worker = settings.worker.model_copy(update={"engine": "native" if isinstance(native, str) else "onnx"})
    return EngineFacts(name=name, memory=_cpu_plan(worker, folder), native=native)


def _native(worker: WorkerSettings, folder: ModelFolder) -> str | Unusable:
    found = unpacked(folder) or find_library(worker)
    if isinstance(found, Unusable):
        return found
    library, built = found
    return f"kernel {library.kernel} of {built.describe()}"


def _upstream_facts(settings: Settings) -> EngineFacts:
    return EngineFacts(name="upstream", upstreams=asyncio.run(_look_at_upstreams(settings)))


async def _look_at_upstreams(settings: Settings) -> tuple[UpstreamFacts, ...]:
    worker, upstream = settings.worker, settings.upstream
    key = None if upstream.key_file is None else read_password(upstream.key_file)
    client = UpstreamClient(key=key, silence_s=upstream.silence_ms / 1_000)

    async def look(address: str) -> UpstreamFacts:
        try:
            found: Served | UpstreamFailure = await client.look(address, model=upstream.model)
        except UpstreamFailure as failure:
            found = failure
        return UpstreamFacts(
            address=address, found=found, model=upstream.model, slots=worker.slots_without_gpu, length=worker.max_length
        )

    try:
        return tuple(await asyncio.gather(*map(look, upstream.url)))
    finally:
        await client.close()


def _cpu_plan(worker: WorkerSettings, folder: ModelFolder) -> MemoryPlan | None:
    available_bytes = available_memory()
    return None if available_bytes is None else cpu_memory_plan(worker, folder.manifest, available_bytes)


def _torch_facts(settings: Settings) -> EngineFacts:
    gpu = find_gpu(settings.worker.torch_device)
    facts = EngineFacts(name="torch", gpu=gpu, device="" if gpu is None else short_device(os.environ))
    if isinstance(gpu, Unusable):
        return facts
    worker = settings.worker
    if gpu is None:
        worker, available_bytes = worker.model_copy(update={"slots": worker.slots_without_gpu}), available_memory()
    else:
        available_bytes = gpu.share_bytes(worker.gpu_share)
    if available_bytes is None:
        return facts
    try:
        folder = ModelFolder.open(settings.model.dir)
        return replace(facts, memory=torch_memory_plan(worker, folder, available_bytes))
    except ReplylineError:
        return facts
