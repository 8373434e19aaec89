"""The compiled library: the kernels that this machine can run, and the functions for `ctypes`."""

import ctypes
import errno
import mmap
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import EngineError, ModelError
from shared.model.folder import NATIVE, REMEDY, Architecture, ModelFolder
from workers.graph.native_layout import LAST_SECTIONS, Form, Index, read_index, section_names
from workers.graph.rotary import rotary_tables


class NativeConfig(ctypes.Structure):
    """`struct native_config` of native.h."""

    _fields_ = (
        *((name, ctypes.c_int32) for name in ("layers", "heads", "kv_heads", "head_dim", "hidden", "intermediate")),
        *((name, ctypes.c_int32) for name in ("vocabulary", "slots", "capacity", "max_step_tokens", "threads", "q4")),
        *((name, ctypes.c_int32) for name in ("joint_norm", "experts", "chosen", "expert_width", "shared_width")),
        ("normalized", ctypes.c_int32),
        ("epsilon", ctypes.c_float),
    )

    @classmethod
    def for_model(
        cls, architecture: Architecture, *, slots: int, capacity: int, max_step_tokens: int, threads: int, q4: bool
    ) -> Self:
        """Return an engine's sizes: `capacity` tokens in each slot, `max_step_tokens` rows in a step."""
        a, experts = architecture, architecture.experts
        mixture = {} if experts is None else {"experts": experts.count, "chosen": experts.chosen}
        if experts is not None:
            mixture |= {"expert_width": experts.width, "shared_width": experts.shared_width}
        return cls(
            **mixture,
            normalized=experts is not None and experts.normalized,
            joint_norm=a.joint_norm,
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
    """A loaded library and its selected kernel. `kernels`: those that this machine can run, the fastest first."""

    path: Path
    functions: Any
    kernels: tuple[str, ...]
    kernel: str

    @classmethod
    def load(cls, path: Path, kernel: str = "auto") -> "Library":
        """Load a library.

        Raises:
            EngineError: the file is not a library, or has no such kernel for this machine.
        """
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
        """Return an engine's handle.

        Args:
            config: the engine's sizes.
            sections: addresses in the order of `native_open`; they must outlive the engine.

        Raises:
            EngineError: there is not enough memory, or no thread.
            ValueError: no kernel supports the sizes.
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
    """Declare the functions' types as in native.h.

    Raises:
        AttributeError: a function is missing.
    """
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


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """The mapped weights. `addresses` are those of `held`, in the order of `native_open`."""

    form: Form
    addresses: list[int | None]
    held: tuple[NDArray[np.uint8] | NDArray[np.float32], ...]

    @classmethod
    def map(cls, folder: ModelFolder, positions: int) -> Self:
        """Map the file, and compute the rotary tables of `positions`.

        Raises:
            ModelError: the file is invalid.
        """
        architecture, path = folder.manifest.architecture, folder.path / NATIVE
        try:
            with path.open("rb") as file:
                view = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path} cannot be mapped ({error}); {REMEDY}") from error
        index = read_index(view, architecture, path)
        mapped = np.frombuffer(view, np.uint8)
        tables = rotary_tables(architecture, positions)
        return cls(index.form, _addresses(index, mapped, tables, architecture.num_layers), (mapped, *tables))


def _addresses(
    index: Index, mapped: NDArray[np.uint8], tables: tuple[NDArray[np.float32], ...], num_layers: int
) -> list[int | None]:
    def address(name: str) -> int | None:
        place = index.places.get(name)
        return None if place is None else mapped.ctypes.data + place.offset

    names = [*section_names(num_layers)]
    last = [address(name) for name in LAST_SECTIONS]
    return [*(table.ctypes.data for table in tables), *last, *map(address, names[: -len(LAST_SECTIONS)])]


PHASES: Final = ("embed", "norm", "qkv", "attention", "out", "gate_up", "down", "head")
"""`enum phase` of native.h, without the one between steps."""

Take = Callable[[int, int, Mapping[str, int]], None]
"""Called after each step with its rows, the longest context, and its phases' nanoseconds."""


class StepProfile:
    """The library adds each step's nanoseconds at `address`; `take` is called with them."""

    def __init__(self, take: Take) -> None:
        self._take = take
        self._ns = np.zeros(1 + len(PHASES), np.int64)

    @property
    def address(self) -> int:
        return self._ns.ctypes.data

    def end_step(self, rows: int, context: int) -> None:
        self._take(rows, context, dict(zip(PHASES, self._ns[1:].tolist(), strict=True)))
        self._ns[:] = 0
