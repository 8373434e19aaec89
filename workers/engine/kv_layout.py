"""The layout of an engine's KV, `[layers, parts, heads, tokens, dim]`; `parts` are key and value. Pure."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.model.folder import Manifest

_LARGEST: Final = 0xFFFF
_KINDS: Final = "fiu"
BFLOAT16: Final = "<u2"
"""numpy has no bfloat16, so its bits are stored as integers; no engine's KV contains real integers of this type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KvLayout:
    """A layout. `dtype` is a numpy name of floats or integers (`float32`, `<f4`), stored in its short little-endian
    form.

    Raises:
        ValueError: a size is not in 1 to 65,535 (`parts`: 255), or the dtype is another one.
    """

    layers: int
    parts: int
    heads: int
    dim: int
    dtype: str

    def __post_init__(self) -> None:
        for name in ("layers", "parts", "heads", "dim"):
            largest = 0xFF if name == "parts" else _LARGEST
            if not 1 <= getattr(self, name) <= largest:
                raise ValueError(f"KV layout: {name} is {getattr(self, name)}; give 1 to {largest}")
        dtype = np.dtype(self.dtype)
        if dtype.kind not in _KINDS:
            raise ValueError(f"KV layout: dtype is {self.dtype!r}; give floats or integers")
        object.__setattr__(self, "dtype", dtype.newbyteorder("<").str)

    @property
    def numpy_dtype(self) -> np.dtype[Any]:
        return np.dtype(self.dtype)

    @property
    def values_per_token(self) -> int:
        return self.layers * self.parts * self.heads * self.dim

    @property
    def bytes_per_token(self) -> int:
        """Return the bytes of one token in the engine's own numbers."""
        return self.values_per_token * self.numpy_dtype.itemsize

    def shape(self, tokens: int) -> tuple[int, int, int, int, int]:
        return (self.layers, self.parts, self.heads, tokens, self.dim)

    def describe(self) -> str:
        """Return a short text for names that is equal only for equal layouts: `30x2x3x64<f4`."""
        return f"{self.layers}x{self.parts}x{self.heads}x{self.dim}{self.dtype}"


def kv_dtype(manifest: Manifest) -> np.dtype[Any]:
    """Return the type of the numbers in which every engine stores this model's KV."""
    if manifest.dialect == "cpu":
        return np.dtype("<f4")
    return np.dtype(BFLOAT16 if manifest.precision in {"bf16", "q4"} else "<f2")


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class KvPieces:
    """Consecutive arrays `[layers, parts, heads, tokens, dim]` from the prompt's first token.

    Each is valid for `Engine.import_kv`, and is often a view of the stored bytes.
    """

    arrays: tuple[NDArray[Any], ...]

    @property
    def num_tokens(self) -> int:
        return sum(array.shape[3] for array in self.arrays)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def between(self, start: int, stop: int) -> list[tuple[int, NDArray[Any]]]:
        """Return the KV of tokens `start .. stop-1` as pieces, each with its first token."""
        found: list[tuple[int, NDArray[Any]]] = []
        at = 0
        for array in self.arrays:
            begin, end = max(start - at, 0), min(stop - at, array.shape[3])
            if begin < end:
                found.append((at + begin, array[:, :, :, begin:end]))
            at += array.shape[3]
        return found
