"""A folder that is created once appears complete or not at all, and leaves no temporary file, even after kills."""

import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ops.model.prepare import put_in_place, workshop_of


def make(target: Path, fill: Callable[[Path], None]) -> Path:
    with workshop_of(target) as workshop:
        fill(workshop.path)
        put_in_place(workshop, target)
    return target


def fill(folder: Path) -> None:
    (folder / "data").write_text("large")


def abandoned(folder: Path) -> Path:
    """Leave it like a killed process does: no process holds the lock."""
    folder.mkdir(parents=True)
    (folder / "owner.lock").touch()
    (folder / "data").write_text("half of it")
    return folder


def test_what_killed_ones_left_is_removed_and_what_is_made_has_no_lock(tmp_path: Path) -> None:
    """Both a folder that was being written and an older one that was being replaced."""
    abandoned(tmp_path / ".terms-x1")
    abandoned(tmp_path / ".terms-old-x2")
    made = make(tmp_path / "terms", fill)
    assert [path.name for path in tmp_path.iterdir()] == ["terms"]
    assert {path.name for path in made.iterdir()} == {"data"}
    assert stat.S_IMODE(made.stat().st_mode) == 0o755


def test_an_older_one_is_replaced_and_nothing_of_it_stays(tmp_path: Path) -> None:
    make(tmp_path / "terms", fill)
    made = make(tmp_path / "terms", lambda folder: (folder / "other").touch())
    assert [path.name for path in tmp_path.iterdir()] == ["terms"]
    assert {path.name for path in made.iterdir()} == {"other"}


def test_who_is_still_writing_is_left_alone(tmp_path: Path) -> None:
    with workshop_of(tmp_path / "terms") as other:
        make(tmp_path / "terms", fill)
        assert other.path.is_dir()


def test_what_cannot_be_filled_leaves_nothing(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        fill(folder)
        raise OSError("no space left")

    with pytest.raises(OSError, match="no space"):
        make(tmp_path / "terms", fail)
    assert list(tmp_path.iterdir()) == []
