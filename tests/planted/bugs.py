"""Plant each bug of bugs.toml in a copy of the code, two at a time, and see that a test named with it fails.

    make planted-bugs
    .venv/bin/python -m tests.planted.bugs slot seq

First the named tests run without a bug: one that fails anyway would catch anything. One that fails and then passes is
named and catches nothing. A bug counts as caught if a test fails, not if the code no longer begins. Status 1 if one is
missed, 2 if the table does not fit the code.
"""

import argparse
import os
import queue
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Final, Literal, NamedTuple, TypeAlias

import msgspec

ROOT: Final = Path(__file__).parents[2]
TABLE: Final = Path(__file__).with_suffix(".toml")
_COPIED: Final = ("docs", "gateway", "ops", "shared", "workers", "tests")
_AT_ONCE: Final = 2
_LIMIT_S: Final = 600
_FAILED: Final = re.compile(r"^FAILED \S+?::(.+?)(?: - .*)?$", re.MULTILINE)


class Bug(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """In `file` the text `old`, which occurs once, becomes `new`; at least one of `tests` must then fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def planted_in(self, text: str) -> str:
        """Return the file's text with the bug. Raises `ValueError` unless `old` occurs exactly once."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name}: {self.old!r} stands {count} times in {self.file}; correct {TABLE.name}")
        return text.replace(self.old, self.new)

    def plant_here(self) -> None:
        """Have this process import the file with the bug; nothing may have imported it yet."""
        package, _, name = self.file.removesuffix(".py").replace("/", ".").rpartition(".")
        module = ModuleType(f"{package}.{name}")
        assert module.__name__ not in sys.modules, f"{self.file} is imported already"
        setattr(import_module(package), name, module)
        sys.modules[module.__name__] = module
        exec(compile(self.planted_in((ROOT / self.file).read_text()), self.file, "exec"), module.__dict__)


def read_bugs(table: bytes) -> list[Bug]:
    return msgspec.toml.decode(table, type=dict[str, list[Bug]])["bug"]


def named(part: str, bugs: Collection[Bug]) -> Bug:
    """Return the bug of that name, or the only one whose name holds it. Raises `ValueError`."""
    found = [bug for bug in bugs if bug.name == part] or [bug for bug in bugs if part in bug.name]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} bugs of {TABLE.name} have {part!r} in their name: {[bug.name for bug in found]}"
        )
    return found[0]


def misplaced(bugs: Collection[Bug], root: Path) -> list[str]:
    """Return a line for each bug that does not fit the code in `root`."""
    wrong = []
    for bug in bugs:
        try:
            bug.planted_in((root / bug.file).read_text())
        except (ValueError, OSError) as error:
            wrong.append(str(error))
        wrong += [f"{bug.name}: {test} is missing" for test in bug.tests if not (root / test).is_file()]
    return wrong


class Found(NamedTuple):
    verdict: Literal["caught", "missed", "broken"]  # broken: pytest could not run the tests
    said: str  # by the test that failed, or by pytest


Trial: TypeAlias = Callable[[Path], Found]


def judge(status: int, output: str) -> Found:
    """Return what pytest's status and output say of a bug."""
    if status == 0:
        return Found("missed", "every test passes")
    if status == 1 and (failed := _FAILED.search(output)):
        return Found("caught", failed[1])
    return Found("broken", next((line for line in reversed(output.splitlines()) if line.strip()), "no output"))


def run_tests(copy: Path, tests: Collection[str]) -> Found:
    """Run these tests in the copy, up to the first that fails."""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "--no-header", *tests]
    environment = {**os.environ, "PYTHONPATH": str(copy), "COLUMNS": "400", "LONG_TESTS": "1"}
    try:
        done = subprocess.run(
            command, cwd=copy, env=environment, capture_output=True, text=True, timeout=_LIMIT_S, check=False
        )
    except subprocess.TimeoutExpired:
        return Found("caught", f"nothing ends within {_LIMIT_S} s")
    return judge(done.returncode, done.stdout + done.stderr)


def try_bug(copy: Path, bug: Bug) -> Found:
    """Plant the bug in the copy, run its tests, take it out again."""
    file = copy / bug.file
    text = file.read_text()
    file.write_text(bug.planted_in(text))
    try:
        return run_tests(copy, bug.tests)
    finally:
        file.write_text(text)


def failing_anyway(
    controls: Sequence[Trial], run: Callable[[Sequence[Trial]], Iterable[Found]]
) -> tuple[list[str], list[str]]:
    """Return what fails without a bug two times, and what fails the first time only."""
    first = dict(zip(controls, run(controls), strict=True))
    again = [control for control, found in first.items() if found.verdict != "missed"]
    second = list(run(again))
    failing = [found.said for found in second if found.verdict != "missed"]
    unsteady = [first[control].said for control, found in zip(again, second, strict=True) if found.verdict == "missed"]
    return failing, unsteady


def try_all(bugs: Sequence[Bug]) -> int:
    """Return how many bugs are not caught, or that of the tests that fail without one."""
    with tempfile.TemporaryDirectory(prefix="planted-bugs-") as folder, ThreadPoolExecutor(_AT_ONCE) as pool:
        copies: queue.SimpleQueue[Path] = queue.SimpleQueue()
        for copy in [Path(folder, str(number)) for number in range(_AT_ONCE)]:
            for name in _COPIED:
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".hypothesis"))
            shutil.copy(ROOT / "pyproject.toml", copy)
            copies.put(copy)

        def in_a_copy(trial: Trial) -> Found:
            copy = copies.get()
            try:
                return trial(copy)
            finally:
                copies.put(copy)

        tests = sorted({test for bug in bugs for test in bug.tests})
        controls = [partial(run_tests, tests=tests[first::_AT_ONCE]) for first in range(_AT_ONCE) if tests[first:]]
        failing, unsteady = failing_anyway(controls, partial(pool.map, in_a_copy))
        for said in unsteady:
            print(f"without a bug this failed once and then passed, so it catches nothing: {said}", file=sys.stderr)
        if failing:
            print(f"without a bug the tests do not pass: {', '.join(failing)}", file=sys.stderr)
            return len(failing)
        missed = 0
        for bug, found in zip(bugs, pool.map(in_a_copy, [partial(try_bug, bug=bug) for bug in bugs]), strict=True):
            verdict = "missed" if found.said in unsteady else found.verdict
            print(f"{verdict}: {bug.name} ({found.said})", flush=True)
            missed += verdict != "caught"
        print(f"{len(bugs) - missed} of {len(bugs)} caught")
        return missed


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.planted.bugs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("words", nargs="*", metavar="WORD", help="plant only the bugs whose name holds one of these")
    words: list[str] = parser.parse_args(arguments).words
    bugs = read_bugs(TABLE.read_bytes())
    if wrong := misplaced(bugs, ROOT):
        print(*wrong, sep="\n", file=sys.stderr)
        return 2
    chosen = [bug for bug in bugs if not words or any(word in bug.name for word in words)]
    if not chosen:
        parser.error(f"no bug's name holds {' or '.join(words)}; the names are in tests/{TABLE.name}")
    return 1 if try_all(chosen) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
