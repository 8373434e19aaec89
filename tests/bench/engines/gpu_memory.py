"""What a process has taken of its GPU's memory, where it has one."""

import importlib
from typing import Any, Final

_MIB: Final = 1 << 20


class GpuMemory:
    """Made before the engine is: what is free then is what its memory is told from.

    Asks by cuda-bindings or by torch, whichever is there; without either, or without a GPU, everything is on the CPU.
    """

    def __init__(self) -> None:
        self._name, self._free_at_first = _look() or ("cpu", 0)

    @property
    def device(self) -> str:
        """The GPU's name where the engine took memory of it, else `cpu`."""
        return self._name if self.taken_mib() is not None else "cpu"

    def taken_mib(self) -> float | None:
        """None where nothing was taken, or there is no GPU. Another process on the same GPU falsifies it."""
        found = None if self._name == "cpu" else _look()
        taken = self._free_at_first - found[1] if found is not None else 0
        return taken / _MIB if taken >= _MIB else None


def _look() -> tuple[str, int] | None:
    """Its name and its free bytes."""
    return _by_cuda() or _by_torch()


def _by_cuda() -> tuple[str, int] | None:
    cuda = _module("cuda.bindings.runtime")
    if cuda is None:
        return None
    try:
        status, count = cuda.cudaGetDeviceCount()
        if status != cuda.cudaError_t.cudaSuccess or not count:
            return None
        _, properties = cuda.cudaGetDeviceProperties(0)
        _, free, _ = cuda.cudaMemGetInfo()
    except RuntimeError:  # no driver to ask
        return None
    return properties.name.decode().rstrip("\0"), int(free)


def _by_torch() -> tuple[str, int] | None:
    torch = _module("torch")
    if torch is None or not torch.cuda.is_available():
        return None
    return str(torch.cuda.get_device_name(0)), int(torch.cuda.mem_get_info()[0])


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None
