"""What the front door does with the caller's shell."""

import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[3]


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


def test_a_bench_loads_a_system_of_its_own_also_where_the_shell_has_read_a_demos_file(tmp_path: Path) -> None:
    replyline = tmp_path / "replyline"
    replyline.write_text('#!/bin/sh\necho "$@ of ${REPLYLINE_URL-its own}"\n')
    replyline.chmod(0o755)
    recipe = subprocess.run(
        ["make", "--dry-run", "bench", f"BIN={tmp_path}", "BENCH_ARGS=--rate 5"],
        env={"PATH": os.environ["PATH"]},  # of a make around it nothing
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    env = {"PATH": os.environ["PATH"], "REPLYLINE_URL": "ws://127.0.0.1:8080/ws"}
    typed = ["sh", "-c", recipe.splitlines()[-1]]
    shown = subprocess.run(typed, env=env, capture_output=True, text=True, check=True).stdout
    assert shown == "bench --rate 5 of its own\n"
