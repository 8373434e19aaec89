"""A temporary directory that goes with its owner, also when that is killed: the next one to be made removes it.

The owner holds a lock on a file inside, which the kernel lets go of with the process. Whoever finds a directory whose
lock is free knows that nobody owns it: also across containers, where process ids say nothing. Where the file system has
no locks (some of the network's) a directory goes with its owner only if that lives to remove it.
"""

import errno
import fcntl
import glob
import os
import shutil
import tempfile
from pathlib import Path
from typing import Final, Self

_LOCK: Final = "owner.lock"
_NO_LOCKS: Final = {errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS}


class OwnedDirectory:
    """`path` is there from the constructor to `remove` or `give_away`."""

    def __init__(self, prefix: str, *, parent: Path | None = None) -> None:
        """`parent` is the system's directory for temporary files where none is given."""
        place = parent or Path(tempfile.gettempdir())
        remove_abandoned(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._is_ours = True
        # Locked before it bears its name: nobody finds it free.
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = _locked(unnamed)
        if self._lock is not None:
            unnamed.rename(self.path / _LOCK)

    def give_away(self, target: Path) -> None:
        """Rename it to `target`, which must not be there: what is in it stays, without the lock, and has no owner."""
        assert self._is_ours, "it is given away once"
        (self.path / _LOCK).unlink(missing_ok=True)
        self.path.rename(target)
        self._let_go()

    def remove(self) -> None:
        """May be called again."""
        if self._is_ours:
            shutil.rmtree(self.path, ignore_errors=True)
            self._let_go()

    def _let_go(self) -> None:
        self._is_ours = False
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()


def _locked(path: Path) -> int | None:
    """Return a new file, open and locked; None, and no file, where the file system has no locks. Raises `OSError`."""
    file = os.open(path, os.O_CREAT | os.O_RDWR)
    try:
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError as error:
        os.close(file)
        path.unlink()
        if error.errno not in _NO_LOCKS:
            raise
        return None
    return file


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
