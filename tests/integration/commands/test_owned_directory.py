"""A temporary directory is removed with its owner: at its end, or by the next owner after a kill."""

import errno
import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from ops.stack.owned_directory import OwnedDirectory

HOLDER = """
import sys
from pathlib import Path
from ops.stack.owned_directory import OwnedDirectory
owned = OwnedDirectory("here-", parent=Path(sys.argv[1]))
(owned.path / "data").write_text("large")
print(owned.path, flush=True)
sys.stdin.read()
"""


def hold(parent: Path) -> tuple["subprocess.Popen[str]", Path]:
    """A process that owns a directory."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    return holder, Path(holder.stdout.readline().strip())


def test_the_directory_of_a_killed_owner_is_removed_by_the_next_and_a_live_owners_is_not(tmp_path: Path) -> None:
    living, kept = hold(tmp_path)
    killed, left = hold(tmp_path)
    with living, killed:
        killed.kill()
        killed.wait()
        assert (left / "data").exists()
        with OwnedDirectory("here-", parent=tmp_path) as own:
            assert not left.exists()
            assert (kept / "data").exists()
            assert own.path.is_dir()
        assert not own.path.exists()
        own.remove()
        living.kill()


def test_an_unlocked_directory_of_that_name_is_not_removed(tmp_path: Path) -> None:
    """It may belong to a program that uses no locks."""
    other = tmp_path / "here-other"
    other.mkdir()
    with OwnedDirectory("here-", parent=tmp_path):
        assert other.is_dir()


def test_a_released_directory_stays_and_has_no_owner(tmp_path: Path) -> None:
    """It keeps its content under its new name; its creator does not remove it."""
    with OwnedDirectory("here-", parent=tmp_path) as own:
        (own.path / "data").write_text("large")
        own.give_away(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["data"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_still_gets_a_directory(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other directory is removed, because whether its owner lives cannot be known there."""

    def flock(*_: int) -> None:
        raise OSError(number, "no locks")

    other = tmp_path / "here-other"
    other.mkdir()
    monkeypatch.setattr(fcntl, "flock", flock)
    with OwnedDirectory("here-", parent=tmp_path) as own, OwnedDirectory("here-", parent=tmp_path) as removed:
        assert own.path.is_dir()
        (own.path / "data").write_text("large")
        own.give_away(tmp_path / "kept")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here-other", "kept"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["data"]
    assert not removed.path.exists()


def test_any_other_lock_error_is_raised(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="the disk is broken"):
        OwnedDirectory("here-", parent=tmp_path)
