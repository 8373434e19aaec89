"""Check that a GGUF file's header can be true, before anything is made of it.

`gguf` believes the header: an array of 2^60 bytes that the file does not have would be read, empty, 2^60 times. Here
every length is held against the bytes that are left, and whatever is counted takes some of them. The form: ggml's
docs/gguf.md.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Final

_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MAX_KEY_BYTES: Final = 65_535
_MAX_DIMS: Final = 4
_MAX_ELEMENTS: Final = 2**48
_STRING: Final = 8
_ARRAY: Final = 9
# By ggml's numbers: uint8, int8, uint16, int16, uint32, int32, float32, bool, uint64, int64, float64.
_SCALAR_BYTES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def check_header(path: Path) -> None:
    """Raise `ValueError` with what is wrong, `OSError`."""
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as GGUF does")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _Header(data, len(data), len(_MAGIC)).check()


@dataclass(slots=True)
class _Header:
    """Goes through the header; `at` is where it is."""

    data: mmap.mmap
    size: int
    at: int

    def check(self) -> None:
        version = self._number("<I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is not supported")
        tensors, fields = self._number("<Q"), self._number("<Q")
        for _ in range(fields):
            self._string(_MAX_KEY_BYTES)
            self._value(self._number("<I"))
        for _ in range(tensors):
            self._tensor()

    def _value(self, kind: int) -> None:
        if kind == _STRING:
            self._string(self.size)
        elif kind == _ARRAY:
            self._array()
        else:
            self._skip(self._bytes_of(kind))

    def _array(self) -> None:
        kind, length = self._number("<I"), self._number("<Q")
        if kind != _STRING:
            self._skip(length * self._bytes_of(kind))
            return
        for _ in range(length):
            self._string(self.size)

    def _tensor(self) -> None:
        self._string(_MAX_KEY_BYTES)
        dims = self._number("<I")
        if dims > _MAX_DIMS:
            raise ValueError(f"a tensor has {dims} dimensions, {_MAX_DIMS} at most are read")
        elements = 1
        for _ in range(dims):
            elements *= self._number("<Q")
        if elements > _MAX_ELEMENTS:
            raise ValueError(f"a tensor has {elements} elements")
        self._number("<I")
        if self._number("<Q") > self.size:
            raise ValueError("a tensor begins behind the file's end")

    def _bytes_of(self, kind: int) -> int:
        size = _SCALAR_BYTES.get(kind)
        if size is None:
            raise ValueError(f"a value has the unknown type {kind}")
        return size

    def _number(self, form: str) -> int:
        size = struct.calcsize(form)
        start = self.at
        self._skip(size)
        number: int = struct.unpack_from(form, self.data, start)[0]
        return number

    def _string(self, most: int) -> None:
        length = self._number("<Q")
        if length > most:
            raise ValueError(f"a text of {length} bytes is longer than it may be")
        self._skip(length)

    def _skip(self, size: int) -> None:
        if size > self.size - self.at:
            raise ValueError("it is cut off")
        self.at += size
