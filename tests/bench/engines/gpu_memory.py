"""A process's GPU memory as nvidia-smi reports it, if there is a GPU."""

import shutil
import subprocess
from typing import Final

_QUERY: Final = ("--query-gpu=name,memory.used", "--format=csv,noheader,nounits")


class GpuMemory:
    """Made before the engine is: what is in use then is not the engine's. Others on the first GPU falsify it."""

    def __init__(self) -> None:
        self._name, self._before = _look() or ("cpu", 0.0)

    @property
    def device(self) -> str:
        """The GPU's name where the engine took memory of it, else `cpu`."""
        return self._name if self.taken_mib() is not None else "cpu"

    def taken_mib(self) -> float | None:
        """Return None if no memory was taken, or if the machine has no GPU."""
        found = None if self._name == "cpu" else _look()
        taken = found[1] - self._before if found is not None else 0.0
        return taken if taken >= 1 else None


def _look() -> tuple[str, float] | None:
    """Return the first GPU's name and its MiB in use."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return None
    said = subprocess.run([program, *_QUERY], capture_output=True, text=True, check=False)
    name, comma, used = said.stdout.partition("\n")[0].rpartition(",")
    return (name.strip(), float(used)) if said.returncode == 0 and comma else None
