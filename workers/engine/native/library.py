"""The compiled library: which kernels of it this machine can run, and its functions for `ctypes`."""

import ctypes
import errno
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from shared.errors import EngineError
from shared.model.folder import Architecture


class NativeConfig(ctypes.Structure):
    """`struct native_config` of native.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate")),
        *((name, ctypes.c_int32) for name in ("vocabulary", "slots", "capacity", "max_step_tokens", "threads", "q4")),
        ("epsilon", ctypes.c_float),
    )

    @classmethod
    def of(
        cls, architecture: Architecture, *, slots: int, capacity: int, max_step_tokens: int, threads: int, q4: bool
    ) -> Self:
        """Return the numbers of an engine: `capacity` tokens in each of its slots, `max_step_tokens` rows in a step."""
        a = architecture
        return cls(
            layers=a.num_layers,
            heads=a.num_heads,
            kv_heads=a.num_kv_heads,
            head_dim=a.head_dim,
            hidden=a.hidden_size,
            intermediate=a.intermediate_size,
            vocabulary=a.vocab_size,
            slots=slots,
            capacity=capacity,
            max_step_tokens=max_step_tokens,
            threads=threads,
            q4=q4,
            epsilon=a.norm_epsilon,
        )


@dataclass(frozen=True, slots=True)
class Library:
    """A loaded library, and the kernel of it that is to compute. `kernels`: those that this machine can run, the
    fastest first."""

    path: Path
    functions: Any
    kernels: tuple[str, ...]
    kernel: str

    @classmethod
    def load(cls, path: Path, kernel: str = "auto") -> "Library":
        """Load a library. Raises `EngineError` where the file is none, or has no such kernel for this machine."""
        try:
            functions = _declared(ctypes.CDLL(str(path), use_errno=True))
        except (OSError, AttributeError) as error:
            raise EngineError(
                f"{path} cannot be loaded ({error}); remove it, and run: replyline model prepare"
            ) from error
        kernels = tuple(functions.native_kernels().decode().replace("_", "-").split())
        if not kernels or kernel not in ("auto", *kernels):
            known = ", ".join(("auto", *kernels)) if kernels else "no kernel; set REPLYLINE_WORKER__ENGINE=onnx"
            raise EngineError(f"REPLYLINE_WORKER__NATIVE_KERNEL={kernel}: this machine can run {known}")
        return cls(path, functions, kernels, kernels[0] if kernel == "auto" else kernel)

    def open(self, config: NativeConfig, sections: Sequence[int | None]) -> int:
        """Return an engine's handle. `sections` are addresses, in the order of `native_open`; they must outlive it.

        Raises `EngineError` where there is no memory or no thread left, `ValueError` for sizes that no kernel takes.
        """
        addresses = (ctypes.c_void_p * len(sections))(*sections)
        handle = self.functions.native_open(ctypes.byref(config), addresses, self.kernel.replace("-", "_").encode())
        if handle:
            return int(handle)
        number = ctypes.get_errno()
        if number == errno.EINVAL:
            raise ValueError("the native engine cannot compute a model of these sizes")
        raise EngineError(f"the native engine cannot start ({os.strerror(number)}); lower REPLYLINE_WORKER__SLOTS")


def _declared(functions: Any) -> Any:
    """Return the library with its functions' types, as native.h has them. Raises `AttributeError` where one lacks."""
    handle, integer, text = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
    for name, result, arguments in (
        ("native_kernels", text, ()),
        ("native_open", handle, (ctypes.POINTER(NativeConfig), ctypes.POINTER(ctypes.c_void_p), text)),
        ("native_close", None, (handle,)),
        ("native_stride", integer, (handle,)),
        ("native_step", integer, (handle, integer, *(ctypes.c_void_p,) * 3, integer, *(ctypes.c_void_p,) * 4)),
        ("native_profile", None, (handle, ctypes.c_void_p)),
        ("native_export", None, (handle, integer, integer, integer, ctypes.c_void_p)),
        ("native_import", integer, (handle, integer, integer, integer, ctypes.c_void_p)),
        ("native_move", None, (handle, integer, integer, integer)),
    ):
        function = getattr(functions, name)
        function.restype, function.argtypes = result, arguments
    return functions
