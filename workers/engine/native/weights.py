"""A prepared folder's `model.native`, mapped into memory read-only: workers of one machine share its pages."""

import mmap
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError
from shared.model.folder import NATIVE, REMEDY, ModelFolder
from workers.graph.native_layout import LAST_SECTIONS, Form, Index, read_index, section_names
from workers.graph.rotary import rotary_tables


@dataclass(frozen=True, slots=True)
class NativeWeights:
    """`addresses` are in the order of `native_open`, and are those of `held`."""

    form: Form
    addresses: list[int | None]
    held: tuple[NDArray[np.uint8] | NDArray[np.float32], ...]

    @classmethod
    def map(cls, folder: ModelFolder, positions: int) -> Self:
        """Map the file, and compute the rotary tables of `positions`. Raises `ModelError` where it is not as it should
        be."""
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
