"""The KV of a prompt's first tokens, in the pieces it was kept in: nothing is joined before it is in a slot. Pure."""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class KvPieces:
    """Arrays `[layers, parts, heads, tokens, dim]` that follow each other from the prompt's first token on: each what
    `Engine.import_kv` takes, often a view of the bytes that it was kept as."""

    arrays: tuple[NDArray[Any], ...]

    @property
    def num_tokens(self) -> int:
        return sum(array.shape[3] for array in self.arrays)

    @property
    def num_bytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)

    def between(self, start: int, stop: int) -> list[tuple[int, NDArray[Any]]]:
        """Return the KV of tokens `start .. stop-1`: each piece of it with its first token."""
        found: list[tuple[int, NDArray[Any]]] = []
        at = 0
        for array in self.arrays:
            begin, end = max(start - at, 0), min(stop - at, array.shape[3])
            if begin < end:
                found.append((at + begin, array[:, :, :, begin:end]))
            at += array.shape[3]
        return found
