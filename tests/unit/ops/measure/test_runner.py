"""What the benches print while they run."""

import io

import pytest
from rich.console import Console

from ops.measure.runner import progress_bar


@pytest.mark.parametrize("terminal", [False, True])
def test_a_progress_bar_is_shown_in_a_terminal_only(terminal: bool) -> None:
    shown = io.StringIO()
    with progress_bar(Console(file=shown, force_terminal=terminal), "answers", 2) as progress:
        progress(1)
        progress(2)
    assert bool(shown.getvalue()) == terminal
