"""Change the scheduler, in-flight table, session, offsets and admission one expression at a time (mutmut), and see that
a test notices each change.

    make mutants
    make mutants MUTANTS="workers.schedule.scheduler.* shared.records.offsets.*"

A change that no test notices has to be named in mutants.toml, with the reason why no test can notice it or none need.
Status 1 if one is not named, or if what is named there is noticed.
"""

import os
import subprocess
import sys
import tomllib
from collections.abc import Collection
from fnmatch import fnmatch
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[2]
ARGUED: Final = Path(__file__).with_suffix(".toml")
_LOG: Final = ROOT / ".cache" / "mutants.log"  # mutmut redraws a line a hundred times a second
_UNNOTICED: Final = ("survived", "no tests", "suspicious")


class Change(NamedTuple):
    """In `file` the lines `old` became `new`."""

    file: str
    old: str
    new: str

    def __str__(self) -> str:
        lines = [f"- {line}" for line in self.old.splitlines()] + [f"+ {line}" for line in self.new.splitlines()]
        return "\n".join([self.file, *lines])


def change_of(file: str, diff: str) -> Change:
    """Return the change that a unified diff of one function shows."""
    lines = [line for line in diff.splitlines() if not line.startswith(("---", "+++", "@@"))]
    old, new = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign) and line[1:].strip()) for sign in "-+"
    )
    return Change(file, old, new)


def argued(table: str) -> set[Change]:
    """Return the changes that need no test. Raises `ValueError` if one has no reason, or is listed twice."""
    found: set[Change] = set()
    for each in tomllib.loads(table)["mutant"]:
        change = Change(each["file"], each["old"].strip(), each["new"].strip())
        if not each.get("why", "").strip() or change in found:
            raise ValueError(f"{ARGUED.name}: no reason, or twice: {change}")
        found.add(change)
    return found


class Tried(NamedTuple):
    num_tried: int
    whole: set[str]  # files of which every change was tried
    unnoticed: set[Change]


def verdict(tried: Tried, reasons: Collection[Change]) -> tuple[list[Change], list[Change]]:
    """Return the survivors that the table does not explain, and explained ones that no longer survive."""
    stale = {change for change in reasons if change.file in tried.whole and change not in tried.unnoticed}
    return sorted(tried.unnoticed - set(reasons)), sorted(stale)


def _run(patterns: Collection[str]) -> int:
    _LOG.parent.mkdir(exist_ok=True)
    with _LOG.open("wb") as log:
        command = [sys.executable, "-m", "mutmut", "run", "--max-children", "2", *patterns]
        env = {**os.environ, "LONG_TESTS": "1"}
        return subprocess.run(command, cwd=ROOT, env=env, stdout=log, stderr=log, check=False).returncode


def _tried(patterns: Collection[str]) -> Tried:
    from mutmut.mutation.data import SourceFileMutationData
    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.stats import status_by_exit_code
    from mutmut.utils.file_utils import walk_mutatable_files

    found = Tried(0, set(), set())
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        statuses = {name: status_by_exit_code[code] for name, code in data.exit_code_by_key.items()}
        tried = {name: status for name, status in statuses.items() if status != "not checked"}
        if tried and len(tried) == len(statuses):
            found.whole.add(str(path))
        tried = {name: tried[name] for name in tried if not patterns or any(fnmatch(name, each) for each in patterns)}
        found = found._replace(num_tried=found.num_tried + len(tried))
        survivors = [name for name, status in tried.items() if status in _UNNOTICED]
        found.unnoticed.update(change_of(str(path), get_diff_for_mutant(name, path=path)) for name in survivors)
    return found


def main(patterns: Collection[str]) -> int:
    reasons = argued(ARGUED.read_text())
    os.chdir(ROOT)  # mutmut's own
    if status := _run(patterns):
        print(f"mutmut ended with {status}; all it said is in {_LOG.relative_to(ROOT)}", file=sys.stderr)
        return 2
    tried = _tried(patterns)
    unnoticed, stale = verdict(tried, reasons)
    for change in unnoticed:
        print(f"\nno test notices: {change}")
    for change in stale:
        print(f"\n{ARGUED.name} names what does not survive: {change}")
    argued_away = len(tried.unnoticed) - len(unnoticed)
    print(f"\n{tried.num_tried} tried, {argued_away} argued away, {len(unnoticed)} unnoticed")
    return 1 if unnoticed or stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
