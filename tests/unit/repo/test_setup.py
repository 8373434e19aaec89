"""What `make` is given is checked before anything is changed, and the message names where it was set."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
# Of the make that may run these tests: it would print its folder, and pass its options on.
_OF_MAKE = {"MAKELEVEL", "MAKEFLAGS", "MFLAGS", "PORT", "REPLYLINE_GATEWAY__PORT"}


def make(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """Run `make`; a target's commands are only printed."""
    known = {name: value for name, value in os.environ.items() if name not in _OF_MAKE}
    return subprocess.run(
        ["make", "--dry-run", *words], cwd=ROOT, env=known | env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("target", ["demo", "up"])
@pytest.mark.parametrize("port", ["abc", "70000", "-1", ""])
def test_a_port_that_is_none_is_refused_by_the_name_that_set_it(target: str, port: str) -> None:
    for done, name in (
        (make(target, f"PORT={port}"), "PORT"),
        (make(target, PORT=port), "PORT"),
        (make(target, REPLYLINE_GATEWAY__PORT=port or "x"), "REPLYLINE_GATEWAY__PORT"),
    ):
        (line,) = done.stderr.splitlines()
        assert (done.returncode, done.stdout) == (2, "")
        assert f" {name}={port}" in line


def test_a_port_is_accepted() -> None:
    assert make("demo", "PORT=9000").stdout.endswith("replyline up\n")


def test_a_python_that_does_not_start_leaves_the_environment_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "ops" / "setup").mkdir(parents=True)
    script = Path(shutil.copy(ROOT / "ops" / "setup" / "venv", tmp_path / "ops" / "setup"))
    ready = tmp_path / ".venv" / ".ready-test"
    ready.parent.mkdir()
    ready.write_text("as it was")
    done = subprocess.run(
        [script, "test"], env=os.environ | {"PYTHON": "/nofile"}, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, ready.read_text()) == (2, "", "as it was")
    (line,) = done.stderr.splitlines()
    assert "tried /nofile" in line
    assert "make PYTHON=" in line


def test_building_the_packages_installs_no_test_environment() -> None:
    assert "venv demo" in (printed := make("packages").stdout)
    assert "venv test" not in printed
