"""The options of `replyline record`."""

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from ops.paths import FILE_TO_WRITE


class RecordOptions(Struct, frozen=True, kw_only=True):
    """The options of `replyline record`. The limit that is reached first ends the recording."""

    path: Annotated[Path, typer.Argument(metavar="FILE", callback=FILE_TO_WRITE, help="file to write; must not exist")]
    minutes: Annotated[float, typer.Option(min=0.001, max=10_080, help="end after this many minutes")] = 10.0
    requests: Annotated[int, typer.Option(min=1, max=5_000_000, help="end after this many requests")] = 1_000_000
