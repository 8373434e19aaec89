"""A temporary directory goes with its owner, however that ends."""

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
    """A process that owns one."""
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(parent)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    return holder, Path(holder.stdout.readline().strip())


def test_what_a_killed_owner_left_is_removed_by_the_next_and_a_living_ones_is_not(tmp_path: Path) -> None:
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


def test_a_directory_of_that_name_that_nobody_locked_is_left_alone(tmp_path: Path) -> None:
    """It may be somebody's who knows of no locks."""
    other = tmp_path / "here-other"
    other.mkdir()
    with OwnedDirectory("here-", parent=tmp_path):
        assert other.is_dir()


def test_one_that_is_given_away_stays_and_has_no_owner(tmp_path: Path) -> None:
    """Under its new name, as it was filled; whoever made it removes it no more."""
    with OwnedDirectory("here-", parent=tmp_path) as own:
        (own.path / "data").write_text("large")
        own.give_away(tmp_path / "kept")
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]
    assert [path.name for path in (tmp_path / "kept").iterdir()] == ["data"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_where_the_file_system_has_no_locks_a_directory_is_made_all_the_same(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And no other is judged: whose owner lives nobody can tell there."""

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


def test_a_lock_that_fails_otherwise_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: int) -> None:
        raise OSError(errno.EIO, "the disk is broken")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(OSError, match="the disk is broken"):
        OwnedDirectory("here-", parent=tmp_path)
