"""Read the state of NVIDIA GPUs with NVML, if the package `nvidia-ml-py` and a GPU are present.

https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import importlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shared.telemetry.logs import get_logger

_CONTAINER: Final = "NVIDIA_VISIBLE_DEVICES"
_UUIDS: Final = ("GPU-", "MIG-")
_SHORT: Final = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """The current state of a GPU or MIG slice. `name` is its UUID. Values that the device does not report are None (a
    GPU divided by MIG has no utilisation)."""

    name: str
    memory_total_bytes: int
    memory_used_bytes: int
    utilization: float | None
    temperature_celsius: float | None


@dataclass(slots=True)
class Gpus:
    """The GPUs that this process uses. `lost` says which of them stopped answering first, and why."""

    nvml: Any
    handles: list[Any]
    lost: str | None = None

    @classmethod
    def open(cls, nvml: Any, devices: tuple[str, ...] = ()) -> "Gpus | str":
        """Open the named devices, or all if none is named; return the reason if NVML finds no driver or no such
        device."""
        try:
            nvml.nvmlInit()
            handles = [_handle(nvml, name) for name in devices or map(str, range(nvml.nvmlDeviceGetCount()))]
        except nvml.NVMLError as error:
            return f"NVML does not start ({error})"
        return cls(nvml, handles) if handles else "NVML finds no GPU"

    def read(self) -> list[Gpu]:
        """Return the state of the GPUs that answer. Takes milliseconds, sometimes hundreds."""
        found: list[Gpu] = []
        lost = None
        for index, handle in enumerate(self.handles):
            try:
                found.append(self._read(index, handle))
            except self.nvml.NVMLError as error:
                lost = lost or f"GPU {self._name(index, handle)} does not answer: {error}"
        self._lose(lost)
        return found

    def hangs(self, seconds: float) -> None:
        """Record that a reading has not ended within this time."""
        self._lose(f"NVML has not answered for {seconds:.0f} s")

    def _lose(self, why: str | None) -> None:
        if why is not None and self.lost is None:
            get_logger().error("gpu_lost", cause=why, action="see nvidia-smi; restart the worker when it is back")
        self.lost = why

    def _read(self, index: int, handle: Any) -> Gpu:
        nvml = self.nvml
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        busy = self._asked(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        return Gpu(
            name=self._name(index, handle),
            memory_total_bytes=int(memory.total),
            memory_used_bytes=int(memory.used),
            utilization=None if busy is None else busy / 100,
            temperature_celsius=self._asked(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        )

    def _name(self, index: int, handle: Any) -> str:
        try:
            return str(self.nvml.nvmlDeviceGetUUID(handle))
        except self.nvml.NVMLError:
            return str(index)

    def _asked(self, ask: Callable[[], Any]) -> float | None:
        try:
            return float(ask())
        except self.nvml.NVMLError:
            return None


def visible_devices(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the devices that the environment assigns to this process, by UUID or index; empty for all.

    Indices in NVIDIA_VISIBLE_DEVICES are ignored: they are the host's, and mean nothing inside the container.
    """
    named = _listed(environ.get("CUDA_VISIBLE_DEVICES", ""))
    return named or tuple(name for name in _listed(environ.get(_CONTAINER, "")) if name.startswith(_UUIDS))


def short_device(environ: Mapping[str, str]) -> str:
    """Return a few characters that distinguish this process's device on its host; empty without exactly one device."""
    names = visible_devices(environ)
    if len(names) != 1:
        return ""
    return names[0][:_SHORT] if names[0].startswith(_UUIDS) else f"GPU{names[0]}"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for part in text.split(",") if (name := part.strip()))


def _handle(nvml: Any, name: str) -> Any:
    by_uuid = name.startswith(_UUIDS)
    return nvml.nvmlDeviceGetHandleByUUID(name) if by_uuid else nvml.nvmlDeviceGetHandleByIndex(int(name))


def find_gpus() -> Gpus | str:
    """Return the GPUs, or why they cannot be read."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed"
    return Gpus.open(nvml, visible_devices(os.environ))
