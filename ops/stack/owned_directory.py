"""A temporary directory that is removed with its owner. If the owner is killed, the next directory's owner removes it.

The owner locks a file inside, and the kernel releases the lock with the process. A directory whose lock is free has no
owner: this works across containers, where process ids do not. On a file system without locks (such as some network file
systems) only the owner itself removes its directory.
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
    """A directory at `path`, which exists from the constructor until `remove` or `give_away`."""

    def __init__(self, prefix: str, *, parent: Path | None = None) -> None:
        """Create the directory in `parent`, or in the system's directory for temporary files."""
        place = parent or Path(tempfile.gettempdir())
        remove_abandoned(prefix, place)
        self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=place))
        self._is_ours = True
        # The file is locked before it gets its name, so that no process finds it unlocked.
        unnamed = self.path / f"{_LOCK}.new"
        self._lock = _locked(unnamed)
        if self._lock is not None:
            unnamed.rename(self.path / _LOCK)

    def give_away(self, target: Path) -> None:
        """Rename the directory to `target`, which must not exist. Its content is kept, without a lock and without an
        owner."""
        assert self._is_ours, "the directory was removed or given away already"
        (self.path / _LOCK).unlink(missing_ok=True)
        self.path.rename(target)
        self._let_go()

    def remove(self) -> None:
        """Remove the directory. May be called again."""
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
    """Return a new file, open and locked; None, without a file, on a file system without locks. Raises `OSError`."""
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
    """Remove directories with that prefix whose owners have ended. Directories without a lock file are left alone."""
    for lock in parent.glob(f"{glob.escape(prefix)}*/{_LOCK}"):
        try:
            held = os.open(lock, os.O_RDWR)
        except OSError:
            continue  # belongs to another user, or was just removed
        try:
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            continue  # its owner is running
        else:
            shutil.rmtree(lock.parent, ignore_errors=True)
        finally:
            os.close(held)
