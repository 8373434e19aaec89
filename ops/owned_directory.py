"""A temporary directory that goes with its owner, also when that is killed: the next one to be made removes it.

The owner holds a lock on a file inside, which the kernel lets go of with the process. Whoever finds a directory whose
lock is free knows that nobody owns it: also across containers, where process ids say nothing.
"""

import fcntl
import glob
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final, Self

_LOCK: Final = "owner.lock"


class OwnedDirectory:
    """`path` is there from the constructor to `remove` or `give_away`."""

    def __init__(self, prefix: str, *, parent: Path | None = None) -> None:
        """`parent` is the system's directory for temporary files where none is given."""
        place = parent or Path(tempfile.gettempdir())
        remove_abandoned(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        # Locked before it bears its name: nobody finds it free.
        unnamed = self.path / f"{_LOCK}.new"
        self._lock: int | None = os.open(unnamed, os.O_CREAT | os.O_RDWR)
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        unnamed.rename(self.path / _LOCK)

    def give_away(self, target: Path) -> None:
        """Rename it to `target`, which must not be there: what is in it stays, without the lock, and has no owner."""
        (self.path / _LOCK).unlink()
        self.path.rename(target)
        lock, self._lock = self._lock, None
        assert lock is not None, "it is given away once"
        os.close(lock)

    def remove(self) -> None:
        """May be called again."""
        lock, self._lock = self._lock, None
        if lock is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def remove_abandoned(prefix: str, parent: Path) -> None:
    """Remove the directories of that prefix whose owners are gone. One without a lock is not ours to judge."""
    for lock in parent.glob(f"{glob.escape(prefix)}*/{_LOCK}"):
        try:
            held = os.open(lock, os.O_RDWR)
        except OSError:
            continue  # another user's, or just removed
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its owner lives
        else:
            shutil.rmtree(lock.parent, ignore_errors=True)
        finally:
            os.close(held)
