"""Recorded series of demand: the amount asked in bins of equal length. From this package, or from a file."""

from pathlib import Path
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from shared.errors import SettingsError

_FOLDER: Final = Path(__file__).parent / "series"
NAMES: Final = ("m-small", "m-mid", "m-large", "azure-conv", "azure-code", "elb", "tweets-goog", "tweets-aapl")
LONG_ENOUGH: Final = tuple(name for name in NAMES if not name.startswith("azure"))
"""The series of two weeks or more, from which a day can be learned."""


class Series(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A series. `values` are those of consecutive bins of `bin_s` seconds; None if nothing was recorded, which is not
    zero."""

    name: Annotated[str, Meta(min_length=1)]
    bin_s: Annotated[float, Meta(gt=0, le=86_400)]
    values: Annotated[tuple[Annotated[float, Meta(ge=0)] | None, ...], Meta(min_length=2)]
    title: str = ""
    licence: str = ""
    source: str = ""


def read_series(name: str) -> Series:
    """Return a series by its name, or from a JSON file. Raises `SettingsError` with the cause."""
    path = _FOLDER / f"{name}.json" if name in NAMES else Path(name)
    try:
        return msgspec.json.decode(path.read_bytes(), type=Series)
    except FileNotFoundError:
        raise SettingsError(f"--trace {name}: neither a file nor one of {', '.join(NAMES)}") from None
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        wanted = '{"name": "shop", "bin_s": 600, "values": [12.5, null, 13]}'
        raise SettingsError(f"--trace {name}: {error}; the file must look like {wanted}") from None
