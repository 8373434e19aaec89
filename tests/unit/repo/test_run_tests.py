"""How `make test` evaluates its runs of pytest, here a scripted one: its status and its last lines; how `.ci/run`
evaluates the ledger's; which tests require a GPU."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PYTEST = """#!/bin/sh
case " $* " in
*" tests/unit "*) exit "$CLOCKLESS" ;;
*" --last-failed "*) exit "$AGAIN" ;;
*" tests/browser "*) FAILED=$DOORS STATUS=$((DOORS > 0)) ;;
esac
cache="${*##*cache_dir=}/v/cache"
if [ "$FAILED" -gt 0 ]; then mkdir -p "$cache"; echo '{' >"$cache/lastfailed"; fi
for number in $(seq "$FAILED"); do echo "  \\"tests/a.py::test_$number\\": true," >>"$cache/lastfailed"; done
exit "$STATUS"
"""
# A function replaces the builtin and records which processes the script would have killed.
ENV = 'kill() { echo "$@" >>killed; }\n'
PASSED_AGAIN = "passed the second time only, which is a fault to look for:\n  tests/a.py::test_1\n"
LEDGER = """#!/bin/sh
echo "$@" >>ledger
number=$(wc -l <ledger)
exit "$(echo "$STATUSES" | cut -d ' ' -f "$number")"
"""
FAILED = "the tests that drive processes failed: see above\n"
CLOCKLESS = "the tests that no clock decides failed: see above\n"
TORCH_WITHOUT_A_GPU = "class cuda:\n    is_available = staticmethod(lambda: False)\n"


def ran(folder: Path, script: str, programs: Mapping[str, str], env: Mapping[str, str]) -> tuple[int, str]:
    """The script's status and what it says, among these programs."""
    for name, text in {script: (ROOT / script).read_text(), **programs}.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    done = run(folder / script, folder, {"PATH": f"{folder / 'bin'}:{os.environ['PATH']}", **env})
    return done.returncode, done.stderr


def run(command: Path | str, folder: Path, env: Mapping[str, str], *words: str) -> subprocess.CompletedProcess[str]:
    argv, env = [command, *words], {**os.environ, **env}
    return subprocess.run(argv, env=env, cwd=folder, capture_output=True, text=True, check=False, timeout=100)


@pytest.mark.parametrize(
    ("clockless", "doors", "failed", "status", "again", "ended", "said"),
    [
        (0, 0, 0, 0, 0, 0, ""),
        (1, 0, 0, 0, 0, 1, CLOCKLESS),
        (0, 0, 1, 1, 0, 0, PASSED_AGAIN),
        (0, 1, 0, 0, 0, 0, PASSED_AGAIN),
        (0, 1, 0, 0, 1, 1, ""),
        (0, 0, 1, 1, 1, 1, ""),
        (1, 0, 1, 1, 0, 1, PASSED_AGAIN + CLOCKLESS),
        (0, 2, 1, 1, 0, 1, "of the tests that drive processes 3 failed: see above\n"),
        (0, 0, 0, 1, 0, 1, FAILED),
        (0, 1, 0, 4, 0, 1, FAILED),
    ],
)
def test_the_last_lines_say_all_that_failed(
    tmp_path: Path, *, clockless: int, doors: int, failed: int, status: int, again: int, ended: int, said: str
) -> None:
    """This includes a test that failed once and passed again next to others that are not retried, and a pytest that
    ended before it wrote down the failed tests. No process is killed that has already ended."""
    told = {"CLOCKLESS": clockless, "DOORS": doors, "FAILED": failed, "STATUS": status, "AGAIN": again}
    env = {"BASH_ENV": str(tmp_path / "env"), **{name: str(value) for name, value in told.items()}}
    assert ran(tmp_path, "tests/run", {".venv/bin/pytest": PYTEST, "env": ENV}, env) == (ended, said)
    assert not (tmp_path / "killed").exists()


@pytest.mark.parametrize(
    ("statuses", "tried", "ended"), [("0 0", 1, 0), ("3 0", 2, 0), ("3 3", 2, 3), ("3 1", 2, 1), ("1 0", 1, 1)]
)
def test_the_ledger_is_tried_again_only_where_an_answer_was_late_and_nothing_worse(
    tmp_path: Path, statuses: str, tried: int, ended: int
) -> None:
    programs = {".venv/bin/replyline": LEDGER, "bin/make": "#!/bin/sh\n"}
    assert ran(tmp_path, ".ci/run", programs, {"PYTHON": "true", "STATUSES": statuses})[0] == ended
    lines = (tmp_path / "ledger").read_text().splitlines()
    assert lines == ["chaos run --seed 1 --minutes 2 --brokers 3"] * tried


@pytest.mark.parametrize(
    ("free_gib", "installs", "passes", "ended", "not_run"),
    [(20, True, True, 0, False), (20, True, False, 1, False), (20, False, True, 0, True), (19, True, True, 0, True)],
)
def test_torch_is_tried_where_there_is_room_for_it_and_missed_aloud(
    tmp_path: Path, *, free_gib: int, installs: bool, passes: bool, ended: int, not_run: bool
) -> None:
    """What cannot be installed says nothing of the product; what fails does."""
    programs = {
        ".venv/bin/replyline": LEDGER,
        "bin/make": f'#!/bin/sh\n[ "$1" != test-torch ] || exit {int(not passes)}\n',
        "bin/df": f"#!/bin/sh\necho Filesystem\necho /dev/root 1 1 {free_gib << 20} 1% /\n",
        "ops/setup/torch": f"#!/bin/sh\nexit {int(not installs)}\n",
    }
    status, said = ran(tmp_path, ".ci/run", programs, {"PYTHON": "true", "STATUSES": "0"})
    assert (status, "NOT RUN: the engine of torch" in said) == (ended, not_run)
    assert (tmp_path / "ledger").exists() == (ended == 0)


def test_what_wants_a_gpu_is_not_collected_without_one_and_the_last_lines_name_it(tmp_path: Path) -> None:
    """It is no test that passed."""
    (tmp_path / "torch.py").write_text(TORCH_WITHOUT_A_GPU)
    others = [f"--ignore={path}" for path in (ROOT / "tests/pytorch").glob("test_*.py") if "cuda" not in path.name]
    pytest_ = ("-m", "pytest", "-q", "-p", "no:cacheprovider")
    done = run(sys.executable, ROOT, {"PYTHONPATH": str(tmp_path)}, *pytest_, *others, "tests/pytorch")
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED, done.stdout + done.stderr
    assert "NOT RUN on this machine: torch finds no GPU: no allocation over 1,000 decode steps" in done.stdout
