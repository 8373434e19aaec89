"""Check whether TensorRT works on this machine, in a separate process, because its libraries may crash it.

    python -m workers.engine.tensorrt.probe LIBRARY [PLAN]

prints one line of JSON, `DeviceFacts` or `Unusable`. If a plan is given, it is loaded too.
"""

import ctypes
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from shared.errors import ModelError
from shared.process.extras import install_command
from shared.process.modules import module_command
from workers.engine.tensorrt.build import import_library, make_log
from workers.engine.tensorrt.plans import read_plan
from workers.engine.unusable import Unusable

_OLDEST_SM: Final = 75
_PROGRAM: Final = module_command("workers.engine.tensorrt.probe")
_TIMEOUT_S: Final = 180.0


class DeviceFacts(Struct, frozen=True, kw_only=True, tag="facts"):
    """The first GPU and the library for it. `sm` is the GPU's compute capability, such as `sm_90`."""

    device: str
    sm: str
    free_bytes: int
    total_bytes: int
    version: str

    def share_bytes(self, share: float) -> int:
        """Return the memory that a worker may use: a share of the total, or the free memory if that is less."""
        return min(self.free_bytes, int(self.total_bytes * share))


def probe(
    library: str, plan: Path | None = None, *, program: Sequence[str] = _PROGRAM, timeout_s: float = _TIMEOUT_S
) -> DeviceFacts | Unusable:
    """Run `program` in a separate process and return its result; a crash or timeout gives `Unusable`."""
    command = [*program, library, *([str(plan)] if plan is not None else [])]
    try:
        done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return Unusable(f"{library} did not answer for {timeout_s:g} s; look at nvidia-smi")
    except OSError as error:
        return Unusable(f"{library} cannot be probed ({error.strerror})")
    if done.returncode < 0:
        return Unusable(f"{library} ended its process by {signal.Signals(-done.returncode).name}; install it again")
    lines = done.stdout.splitlines()
    try:
        return msgspec.json.decode(lines[-1] if lines else b"", type=DeviceFacts | Unusable)
    except msgspec.MsgspecError:
        said = (done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return Unusable(f"{library} cannot be probed ({said})")


def look(library_name: str, plan: Path | None) -> DeviceFacts | Unusable:
    """Run the checks of `probe` in this process, in the order of their dependencies."""
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        return Unusable("no CUDA driver on this machine (libcuda.so.1); install NVIDIA's driver")
    try:
        from cuda.bindings import runtime as cuda
    except ImportError as error:
        return Unusable(f"cuda-bindings is not installed ({error}); run: {install_command(library_name)}")
    status, count = cuda.cudaGetDeviceCount()
    if status != cuda.cudaError_t.cudaSuccess or not count:
        name = cuda.cudaGetErrorName(status)[1].decode()
        return Unusable(f"CUDA finds no GPU ({name}); look at nvidia-smi and CUDA_VISIBLE_DEVICES")
    try:
        return _look_closer(cuda, import_library(library_name), plan)
    except ModelError as error:
        return Unusable(str(error))


def _look_closer(cuda: Any, library: Any, plan: Path | None) -> DeviceFacts | Unusable:
    attribute = cuda.cudaDeviceAttr
    major = cuda.cudaDeviceGetAttribute(attribute.cudaDevAttrComputeCapabilityMajor, 0)[1]
    minor = cuda.cudaDeviceGetAttribute(attribute.cudaDevAttrComputeCapabilityMinor, 0)[1]
    status, properties = cuda.cudaGetDeviceProperties(0)
    name = properties.name.decode() if status == cuda.cudaError_t.cudaSuccess else "GPU"
    if major * 10 + minor < _OLDEST_SM:
        return Unusable(f"{name} is sm_{major}{minor}, TensorRT wants sm_{_OLDEST_SM} or later; use another GPU")
    status, free_bytes, total_bytes = cuda.cudaMemGetInfo()
    if status != cuda.cudaError_t.cudaSuccess:
        reason = cuda.cudaGetErrorName(status)[1].decode()
        return Unusable(f"{name} cannot be used ({reason}); look at nvidia-smi")
    log = make_log(library)
    runtime = library.Runtime(log)
    if plan is not None and runtime.deserialize_cuda_engine(read_plan(plan)) is None:
        return Unusable(f"{plan} does not load on {name}, sm_{major}{minor} ({log.last_error}); delete it")
    return DeviceFacts(
        device=name,
        sm=f"sm_{major}{minor}",
        free_bytes=free_bytes,
        total_bytes=total_bytes,
        version=library.__version__,
    )


def main() -> None:
    found = look(sys.argv[1], Path(sys.argv[2]) if len(sys.argv) > 2 else None)  # noqa: PLR2004 - its two arguments
    sys.stdout.buffer.write(msgspec.json.encode(found) + b"\n")


if __name__ == "__main__":
    main()
