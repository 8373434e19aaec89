"""A process of this program runs none of the files that are in the folder where it was started."""

import subprocess
from pathlib import Path

import pytest

from ops.operate.faq.documents import open_document
from shared.process.modules import module_command
from tests.support.typed_pages import ROOT

PARTS = ("ops", "shared", "workers", "gateway")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with files that are named as Python's own modules are."""
    for name in ("csv", "zipfile", "json", "logging", "ops", "shared", "workers"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the current folder was run')\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.usefixtures("folder")
def test_a_module_is_not_taken_from_the_current_folder() -> None:
    ran = subprocess.run(module_command("shared.process.modules"), capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stderr) == (0, "")


@pytest.mark.usefixtures("folder")
def test_a_document_is_read_in_any_folder() -> None:
    assert "is a damaged PDF" in open_document(".pdf", b"no PDF").fault


def test_every_process_is_started_so() -> None:
    files = [file for part in PARTS for file in (ROOT / part).rglob("*.py") if file.name != "modules.py"]
    assert [file for file in files if '"-m"' in file.read_text()] == []
