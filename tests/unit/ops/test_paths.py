"""A path of the wrong kind, or one that this user may not use, is refused; any other is accepted."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ops.paths import FILE_TO_READ, FILE_TO_WRITE, FOLDER_TO_READ, FOLDER_TO_WRITE, PATH_TO_READ, Check, to_read
from shared.errors import SettingsError

PARAMETER: Any = SimpleNamespace(name="where", opts=["--where"], param_type_name="option")


def context(source: str) -> Any:
    return SimpleNamespace(get_parameter_source=lambda _: source)


def checked(check: Check, value: Any, source: str = "ParameterSource.COMMANDLINE") -> Any:
    return check(context(source), PARAMETER, value)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "file").write_text("text")
    (tmp_path / "folder").mkdir()
    return tmp_path


ALL = {
    "file to read": (FILE_TO_READ, {"file"}),
    "folder to read": (FOLDER_TO_READ, {"folder"}),
    "either to read": (PATH_TO_READ, {"file", "folder"}),
    "file to write": (FILE_TO_WRITE, {"file", "new"}),
    "folder to write": (FOLDER_TO_WRITE, {"folder", "new"}),
}


@pytest.mark.parametrize("name", ["file", "folder", "new", "none/new", "file/new"])
@pytest.mark.parametrize(("check", "accepted"), ALL.values(), ids=ALL)
def test_only_the_kind_that_is_wanted_is_accepted(folder: Path, check: Check, accepted: set[str], name: str) -> None:
    path = folder / name
    if name in accepted:
        assert checked(check, path) == path
        return
    with pytest.raises(SettingsError, match=f"--where {path}: .*(name|create)"):
        checked(check, path)


@pytest.mark.parametrize(("check", "accepted"), ALL.values(), ids=ALL)
def test_a_path_that_this_user_may_not_use_is_refused(
    folder: Path, check: Check, accepted: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "access", lambda *_: False)
    for name in accepted:
        with pytest.raises(SettingsError, match=r"may not be (read|written) by this user; name another"):
            checked(check, folder / name)


def test_each_item_of_a_list_is_checked(folder: Path) -> None:
    with pytest.raises(SettingsError, match="none"):
        checked(FILE_TO_READ, [folder / "file", folder / "none"])


def test_a_name_is_accepted_in_place_of_a_file_and_named_in_the_error(folder: Path) -> None:
    check = to_read(names=("cpu", "gpu"))
    assert checked(check, "gpu") == "gpu"
    with pytest.raises(SettingsError, match="name cpu, gpu or an existing file"):
        checked(check, str(folder / "tpu"))


@pytest.mark.parametrize(
    ("check", "is_refused"), [(FILE_TO_READ, False), (FOLDER_TO_WRITE, False), (FILE_TO_WRITE, True)]
)
def test_of_default_paths_only_a_file_to_write_is_checked(folder: Path, check: Check, is_refused: bool) -> None:
    path = folder / "none" / "new"
    if is_refused:
        with pytest.raises(SettingsError, match="create it first"):
            checked(check, path, "ParameterSource.DEFAULT")
    else:
        assert checked(check, path, "ParameterSource.DEFAULT") == path
