"""Reads a Hugging Face folder (`config.json`, `*.safetensors`) as a `Checkpoint`.

The format is a little-endian 64-bit header length, a JSON header and raw bytes: the README of safetensors, "Format".
"""

import json
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Final, Self

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.errors import ModelError
from shared.model.folder import Architecture
from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight
from workers.graph.sources.config import ModelConfig, architecture_of, read_config

_DTYPES: Final[Mapping[str, str]] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LENGTH_BYTES: Final = 8
_MAX_HEADER_BYTES: Final = 100_000_000  # the format's own limit
_INDEX: Final = "model.safetensors.index.json"
_MIXTRAL_PARTS: Final = {"w1": "gate_proj", "w3": "up_proj", "w2": "down_proj"}
# Older checkpoints store the rotary frequencies, which the configuration decides.
_COMPUTED: Final = "rotary_emb.inv_freq"


class _TensorIndex(Struct, frozen=True, kw_only=True):
    """The index: which file each tensor is in."""

    weight_map: dict[str, str]


_Size = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _TensorHeader(Struct, frozen=True, kw_only=True):
    dtype: str
    shape: list[_Size]
    data_offsets: tuple[_Size, _Size]


@dataclass(frozen=True, slots=True)
class SafetensorsSource:
    """A folder as Hugging Face's `save_pretrained` writes it, its weights in one file or in several with an index."""

    path: Path
    config: ModelConfig

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read `config.json`. Raises `ModelError` if it is missing or describes no decoder of this kind."""
        return cls(path, read_config(path))

    @property
    def architecture(self) -> Architecture:
        """Raises `ModelError` with the field and its value if the configuration is not supported."""
        return architecture_of(self.config)

    def files(self) -> list[Path]:
        """Return the weight files, in order of name."""
        index = self.path / _INDEX
        found = self._indexed(index) if index.is_file() else sorted(self.path.glob("*.safetensors"))
        if not found:
            raise ModelError(f"{self.path} has no *.safetensors file; give a model's folder")
        return found

    def checkpoint(self) -> Checkpoint:
        """Return the weights under their canonical names. Raises `ModelError` as `Checkpoint` does."""
        architecture = self.architecture
        weights = {_canonical(name): weight for file in self.files() for name, weight in tensors_of(file).items()}
        weights = {name: weight for name, weight in weights.items() if not name.endswith(_COMPUTED)}
        if architecture.tied_embedding:
            weights.pop("lm_head", None)
        return Checkpoint(architecture=architecture, weights=weights)

    def _indexed(self, index: Path) -> list[Path]:
        try:
            names = msgspec.json.decode(index.read_bytes(), type=_TensorIndex).weight_map.values()
        except (msgspec.MsgspecError, OSError) as error:
            raise ModelError(f"{index} is damaged ({error}); fetch it again") from error
        found = [self.path / name for name in sorted(set(names))]
        for file in found:
            if file.parent != self.path or file.suffix != ".safetensors":
                raise ModelError(f"{index} names {file.name!r} elsewhere than in its folder; fetch it again")
            if not file.is_file():
                raise ModelError(f"{file} is missing, which {_INDEX} names; fetch it again")
        return found


def _canonical(name: str) -> str:
    name = name.removeprefix("model.").removesuffix(".weight").replace(".block_sparse_moe.", ".mlp.")
    stem, _, last = name.rpartition(".")
    return f"{stem}.{_MIXTRAL_PARTS[last]}" if last in _MIXTRAL_PARTS and ".experts." in stem else name


def tensors_of(path: Path) -> dict[str, Weight]:
    """Return every tensor of one safetensors file by its name; the values stay on disk, mapped into memory.

    The header says where each tensor lies. It is checked before a value is read: the header must fit into the file, and
    the tensors must fill the rest of the file without a gap or an overlap, as the format demands.

    Raises:
        ModelError: the file cannot be read, or its header does not match its size.
    """
    try:
        header, start = _header(path)
        header.pop("__metadata__", None)
        entries = {name: msgspec.convert(entry, _TensorHeader) for name, entry in header.items()}
        data = np.memmap(path, dtype=np.uint8, mode="r", offset=start) if entries else np.empty(0, np.uint8)
        _refuse_holes(entries, data.size)
    except (ValueError, OverflowError, RecursionError, OSError) as error:
        raise ModelError(f"{path} is no whole safetensors file ({error}); fetch it again") from error
    return {name: _weight(path, name, entry, data) for name, entry in entries.items()}


def _header(path: Path) -> tuple[dict[str, Any], int]:
    """Return the header and where the data begins. Raises `ValueError`, `RecursionError`, `OSError`."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(0)
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        if size < _LENGTH_BYTES or length > min(size - _LENGTH_BYTES, _MAX_HEADER_BYTES):
            raise ValueError(f"its header would have {length} bytes, the file has {size}")
        # Of two fields with one name other readers take the first, or the last.
        header = json.loads(file.read(length).decode(), object_pairs_hook=_without_repetition)
    if not isinstance(header, dict):
        raise ValueError("its header is no object")  # noqa: TRY004 - of the file, not of an argument
    return header, _LENGTH_BYTES + length


def _without_repetition(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise ValueError("a name stands twice in its header")
    return fields


def _refuse_holes(entries: Mapping[str, _TensorHeader], size: int) -> None:
    at = 0
    for start, stop in sorted(entry.data_offsets for entry in entries.values()):
        if start != at or stop < start:
            raise ValueError(f"its tensors overlap or leave a hole at byte {at}")
        at = stop
    if at != size:
        raise ValueError(f"cut off or damaged: its tensors have {at} bytes, the file has {size} for them")


def _weight(path: Path, name: str, entry: _TensorHeader, data: NDArray[np.uint8]) -> Weight:
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        raise ModelError(f"tensor {name!r} of {path.name} is {entry.dtype}, supported are {', '.join(_DTYPES)}")
    start, stop = entry.data_offsets
    size = math.prod(entry.shape) * np.dtype(dtype).itemsize
    if stop - start != size:
        raise ModelError(f"{path} is cut off or damaged at tensor {name!r}; fetch it again")
    stored = data[start:stop]
    read: Callable[[], Float32Array] = partial(_as_float32, stored, dtype, tuple(entry.shape))
    return Weight(tuple(entry.shape), read)


def _as_float32(stored: NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Float32Array:
    # A copy, since a tensor's bytes need not be aligned in the file.
    values = np.frombuffer(stored.tobytes(), dtype=dtype).reshape(shape)
    if dtype == _DTYPES["BF16"]:
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)
