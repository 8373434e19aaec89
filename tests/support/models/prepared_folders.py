"""A tiny model as `replyline model prepare` leaves it, and copies of it to spoil."""

import shutil
from pathlib import Path

import pytest

from ops.model.prepare import prepare_model
from tests.support.models.fixtures import TINY, write_llama


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("prepared")
    write_llama(base / "tiny", TINY, seed=3)
    return prepare_model(base / "models", "fp32", source=base / "tiny").path


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "model"))


def flip(path: Path) -> None:
    """One bit, the size as it was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
