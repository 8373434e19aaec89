"""What the front door does with the caller's shell."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_is_compiled_is_kept_also_where_the_callers_python_writes_no_bytecode() -> None:
    shown = subprocess.run(
        ["make", "--silent", "--file", "Makefile", "--file", "-", "environment"],
        input="environment:\n\t@env\n",
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUNBUFFERED": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "PYTHONUNBUFFERED=1" in shown
    assert "PYTHONDONTWRITEBYTECODE" not in shown
