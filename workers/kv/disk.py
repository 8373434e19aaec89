"""Store blocks evicted from host memory as files in a folder that only this process reads, and that it removes.

The threads that load and save use the files without the memory's lock; a missing, truncated or changed file fails its
block's check, and the block is computed again. At its start a process removes the folders of killed ones, whose lock no
process holds.
"""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from shared.telemetry import metrics
from shared.telemetry.availability import Availability
from workers.kv.host import HostCache

_LOCK: Final = "lock"
_PREFIX: Final = "kv-"


@dataclass(frozen=True, slots=True)
class StoredBlock:
    """A block's file and its size in bytes."""

    path: Path
    size: int

    def __len__(self) -> int:
        return self.size


class DiskTier:
    """Files of at most `max_bytes`. `keep`, `find` and `erase` need the memory's lock, `write` and `read` do not."""

    def __init__(self, folder: Path, *, max_bytes: int, ttl_s: float) -> None:
        """Create the process's folder.

        Raises:
            OSError: the folder cannot be created.
        """
        folder.mkdir(parents=True, exist_ok=True)
        whole = os.open(folder, os.O_RDONLY)
        try:
            # no other process removes orphans between the creation of this folder and its lock
            fcntl.flock(whole, fcntl.LOCK_EX)
            _remove_orphans(folder)
            self._folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=folder))
            self._lock = (self._folder / _LOCK).open("wb")
            fcntl.flock(self._lock, fcntl.LOCK_EX)
        finally:
            os.close(whole)
        self._index: HostCache[StoredBlock] = HostCache(max_bytes=max_bytes, ttl_s=ttl_s, dropped=_unlink)
        self._writes = Availability("kv disk")

    def __contains__(self, name: object) -> bool:
        return name in self._index

    def keep(self, name: bytes, value: bytes, owner: str, now_unix_ms: float) -> StoredBlock:
        """Return where to write a block."""
        block = StoredBlock(self._folder / name.hex(), len(value))
        self._index.put(name, block, owner, now_unix_ms)
        metrics.kv_disk_bytes.set(self._index.num_bytes)
        return block

    def find(self, names: Iterable[bytes], now_unix_ms: float) -> dict[bytes, StoredBlock]:
        """Return the blocks that are stored."""
        found = {name: self._index.get(name, now_unix_ms) for name in names}
        return {name: block for name, block in found.items() if block is not None}

    def erase(self, owner: str) -> None:
        """Remove all blocks of an owner."""
        self._index.erase(owner)
        metrics.kv_disk_bytes.set(self._index.num_bytes)

    def write(self, block: StoredBlock, value: bytes) -> None:
        """Write a block. If the disk is full, it is not stored."""
        try:
            block.path.write_bytes(value)
        except OSError as error:
            self._writes.mark_down(str(error), action="KV that host memory has no room for is computed again")
            _unlink(block)
        else:
            self._writes.mark_up()

    def read(self, block: StoredBlock) -> bytes | None:
        """Return a block; None if its file does not exist."""
        try:
            return block.path.read_bytes()
        except OSError:
            return None

    def close(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self._folder, ignore_errors=True)
        self._lock.close()


def _unlink(block: StoredBlock) -> None:
    block.path.unlink(missing_ok=True)


def _remove_orphans(folder: Path) -> None:
    """Remove the folders of ended processes: their lock is free."""
    for orphan in folder.glob(f"{_PREFIX}*"):
        try:
            with (orphan / _LOCK).open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(orphan, ignore_errors=True)
        except OSError:  # its process is alive
            continue
