"""`replyline model prepare` on a terminal and elsewhere."""

import io
from pathlib import Path

import pytest
from rich.console import Console

from ops.model.terminal import prepare_with_progress
from shared.errors import ModelError


def test_a_refusal_is_the_only_line_without_a_terminal(tmp_path: Path) -> None:
    """A progress bar that shows nothing would end with an empty line."""
    shown = io.StringIO()
    with pytest.raises(ModelError):
        prepare_with_progress(tmp_path / "models", "int8", tmp_path / "nowhere", Console(file=shown))
    assert shown.getvalue() == ""
