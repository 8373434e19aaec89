"""Read what NVIDIA's management library says of the GPUs, where its package `nvidia-ml-py` is installed and there is
one.

NVML's calls: https://docs.nvidia.com/deploy/nvml-api/group__nvmlDeviceQueries.html
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from shared.telemetry.logs import get_logger


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device as of now. None: it does not tell (a GPU that is divided by MIG has no utilisation)."""

    index: int
    memory_total_bytes: int
    memory_used_bytes: int
    utilization: float | None
    temperature_celsius: float | None


@dataclass(slots=True)
class Gpus:
    """`lost`: the first device that was there at the start and does not answer any more, and why."""

    nvml: Any
    handles: list[Any]
    lost: str | None = None

    @classmethod
    def open(cls, nvml: Any) -> "Gpus | str":
        """Or why there are none: the library finds no driver or no device."""
        try:
            nvml.nvmlInit()
            handles = [nvml.nvmlDeviceGetHandleByIndex(index) for index in range(nvml.nvmlDeviceGetCount())]
        except nvml.NVMLError as error:
            return f"NVML does not begin ({error})"
        return cls(nvml, handles) if handles else "NVML finds no GPU"

    def read(self) -> list[Gpu]:
        """Return the GPUs that answer. Takes milliseconds, at times hundreds of them."""
        found: list[Gpu] = []
        lost = None
        for index, handle in enumerate(self.handles):
            try:
                found.append(self._read(index, handle))
            except self.nvml.NVMLError as error:
                lost = lost or f"GPU {index} does not answer: {error}"
        self._lose(lost)
        return found

    def hangs(self, seconds: float) -> None:
        """Note that a reading has not ended in so long."""
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
            index=index,
            memory_total_bytes=int(memory.total),
            memory_used_bytes=int(memory.used),
            utilization=None if busy is None else busy / 100,
            temperature_celsius=self._asked(lambda: nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)),
        )

    def _asked(self, ask: Callable[[], Any]) -> float | None:
        try:
            return float(ask())
        except self.nvml.NVMLError:
            return None


def find_gpus() -> Gpus | str:
    """Or why there are none to read."""
    try:
        nvml = importlib.import_module("pynvml")
    except ImportError:
        return "nvidia-ml-py is not installed"
    return Gpus.open(nvml)
