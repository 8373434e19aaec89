"""Public series of how much was asked over days, each with its source and licence: the files in `series`."""

from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shared.errors import SettingsError

_FOLDER: Final = Path(__file__).parent / "series"


class Series(Struct, frozen=True, kw_only=True):
    """`values` of bins of `bin_s` seconds; None where nothing was recorded."""

    name: str
    title: str
    licence: str
    source: str
    bin_s: float
    values: tuple[float | None, ...]


def read_series(name: str) -> Series:
    """Return a series by its name. Raises `SettingsError` for a name that is none of them."""
    names = sorted(path.stem for path in _FOLDER.glob("*.json"))
    if name not in names:
        raise SettingsError(f"--trace {name}: none of {', '.join(names)}")
    return msgspec.json.decode((_FOLDER / f"{name}.json").read_bytes(), type=Series)
