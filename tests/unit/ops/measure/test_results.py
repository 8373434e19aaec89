"""An existing result is replaced completely or stays."""

from pathlib import Path

import pytest

from ops.measure.runner import verdict, write_json


def test_a_result_that_was_there_stays_where_the_disk_is_full(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"run": 1})
    before = path.read_bytes()

    def full(where: Path, data: bytes) -> int:
        with where.open("wb") as file:
            file.write(data[:3])
        raise OSError("no space left")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(OSError, match="no space"):
        write_json(path, {"run": 2})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_is_written_through(tmp_path: Path) -> None:
    """A path that is no file is refused too: no terminal is replaced."""
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "a.json")
    write_json(link, {"run": 1})
    assert link.is_symlink()
    assert (tmp_path / "a.json").read_bytes() == b'{\n  "run": 1\n}\n'


def test_a_target_is_not_met_where_requests_failed() -> None:
    """The slowest are not among the times: they were given up."""
    assert verdict(1.0, 2.0) == "≤ 2.00 met"
    assert verdict(1.0, 2.0, failed=3) == "≤ 2.00 missed: 3 failed"
