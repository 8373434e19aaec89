"""The learned output lengths on disk, beside the costs: read at the start, written now and then and at the stop.

A file of another model, another slot length or another version says nothing here and is passed over, as is a damaged
one: lengths are learned anew within minutes. Nothing here stops a worker.
"""

import asyncio
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from shared.telemetry.logs import get_logger
from workers.engine import EngineInfo
from workers.schedule.lengths import KeptClass, OutputLengths
from workers.serving.calibration import save

SCHEMA_VERSION: Final = 1
_EVERY_S: Final = 60.0


class LengthsTable(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is in the file: whose answers, and the classes."""

    schema_version: int = SCHEMA_VERSION
    model: str
    revision: str
    longest: int
    classes: dict[str, KeptClass]


@dataclass(slots=True)
class KeptLengths:
    """`lengths` as they were kept, or new ones. No path: nothing is read or written."""

    path: Path | None
    info: EngineInfo
    lengths: OutputLengths = field(init=False)

    def __post_init__(self) -> None:
        self.lengths = OutputLengths(longest=self.info.max_length)
        if self.path is None:
            return
        try:
            self.lengths = self._read(self.path)
        except FileNotFoundError:
            pass
        except (OSError, ValueError) as error:  # msgspec's errors and a wrong encoding's are ValueErrors
            get_logger().warning("kept_lengths_ignored", path=str(self.path), why=str(error))

    async def write_regularly(self) -> None:
        """What the observing thread published last, where that is new."""
        written = self.lengths.published
        while self.path is not None:
            await asyncio.sleep(_EVERY_S)
            if self.lengths.published is not written:
                written = self.lengths.published
                await asyncio.to_thread(self._write, self.path, dict(written))

    def write(self) -> None:
        """Everything: only while no thread observes."""
        if self.path is not None:
            self._write(self.path, self.lengths.state())

    def _read(self, path: Path) -> OutputLengths:
        """Raises `OSError`, or `ValueError` for a file that is not this model's."""
        table = msgspec.json.decode(path.read_bytes(), type=LengthsTable)
        theirs = (table.schema_version, table.model, table.revision, table.longest)
        ours = (SCHEMA_VERSION, self.info.model, self.info.revision, self.info.max_length)
        if theirs != ours:
            raise ValueError(f"it is of {theirs}, not of {ours} (version, model, revision, longest)")
        return OutputLengths.from_state(table.classes, longest=table.longest)

    def _write(self, path: Path, classes: dict[str, KeptClass]) -> None:
        info = self.info
        table = LengthsTable(model=info.model, revision=info.revision, longest=info.max_length, classes=classes)
        try:
            save(path, table)
        except OSError as error:
            get_logger().warning("lengths_not_kept", path=str(path), why=error.strerror)
