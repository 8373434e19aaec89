"""Writes a safetensors file: a little-endian 64-bit header length, a JSON header, the tensors' bytes one after another
(the README of safetensors, "Format"). `workers/graph/sources/safetensors.py` reads it."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

_DTYPES: Final = {"float32": "F32", "float16": "F16"}
_ALIGNMENT: Final = 8


def write_tensors(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str]) -> None:
    """Write float32 and float16 arrays, whole or not at all: an older file stays until the new one is complete."""
    header: dict[str, object] = {"__metadata__": dict(metadata)}
    at = 0
    for name, tensor in tensors.items():
        size = tensor.nbytes
        header[name] = {"dtype": _DTYPES[str(tensor.dtype)], "shape": tensor.shape, "data_offsets": (at, at + size)}
        at += size
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % _ALIGNMENT)
    new = path.with_name(f".{path.name}.new")
    with new.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for tensor in tensors.values():
            file.write(np.ascontiguousarray(tensor).tobytes())
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
