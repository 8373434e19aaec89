"""The scripts that Redis runs are changed too, one place at a time: in a copy of the code, before their own tests.

    make mutants                                              # after the deciding modules: 20 minutes
    .venv/bin/python -m tests.mutation.lua --only quotas

What goes unnoticed is argued away in the same table (`argued.toml`).
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console

from ops.usage_errors import run_app
from shared.process.lifetime import BAD_INPUT_STATUS, fail
from tests.mutation.__main__ import ARGUED, ROOT, Change, argued
from tests.planted_bugs.__main__ import Verdict, copy_code, run_tests, try_bug
from tests.planted_bugs.bug import Bug

# The scripts of each file, and the tests that know what they promise.
SCRIPTS: Final[Mapping[str, tuple[str, ...]]] = {
    "shared/conversation/history.py": (
        "tests/integration/services/test_redis_client.py",
        "tests/integration/kv/test_store.py",
    ),
    "shared/conversation/handoff_store.py": ("tests/integration/services/test_handoff_store.py",),
    "gateway/access/quotas.py": (
        "tests/integration/doors/test_quotas.py",
        "tests/integration/services/test_redis_client.py",
    ),
    "workers/kv/scripts.py": ("tests/integration/kv/test_store.py", "tests/integration/kv/test_store_planted.py"),
}
_SCRIPT: Final = re.compile(r'= """\n((?:(?!""").)*?redis\.call.*?)"""', re.DOTALL)
_STATEMENT: Final = re.compile(r"^ *redis\.call\(.*\)\n", re.MULTILINE)
_SWAPS: Final = (
    *((r"(?<= )>(?= )", ">="), (r"(?<= )>=(?= )", ">"), (r"(?<= )==(?= )", "~="), (r"(?<= )~=(?= )", "==")),
    *((r"\band\b", "or"), (r"\bor\b", "and"), (r"(?<= )\+(?= )", "-"), (r"(?<= )-(?= )", "+"), (r"(?<= )\*(?= )", "/")),
    *((r"\bmath\.max\b", "math.min"), (r"(?<![\w.'-])0(?![\w.'])", "1"), (r"(?<![\w.'-])1(?![\w.'])", "2")),
    *((r"-1\b", "-2"), (r"(?<![\w.'-])2(?![\w.'])", "1"), (r"(?<![\w.'-])3(?![\w.'])", "2")),
)

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


def places(script: str) -> Iterator[tuple[int, int, str]]:
    """What may be changed: from, to, and what stands there then."""
    code = re.sub(r"--.*", lambda comment: " " * len(comment[0]), script)
    for pattern, new in _SWAPS:
        for found in re.finditer(pattern, code):
            yield found.start(), found.end(), new
    for found in _STATEMENT.finditer(code):
        yield found.start(), found.end(), ""


def bugs_of(file: str, text: str, tests: tuple[str, ...]) -> Iterator[Bug]:
    """A bug for each place, with as much of what stands around it as makes it the only one of its kind."""
    for script in _SCRIPT.finditer(text):
        for start, end, new in sorted(set(places(script[1]))):
            first, last = script.start(1) + start, script.start(1) + end
            left, right = text.rfind("\n", 0, first) + 1, text.index("\n", last - 1) + 1
            while text.count(text[left:right]) > 1:
                left = text.rfind("\n", 0, left - 1) + 1
            old, changed = text[left:right], text[left:first] + new + text[last:right]
            yield Bug(f"{file}: {text[first:last].strip()} in: {_last(old)}", file, old, changed, tests)


def _last(lines: str) -> str:
    return lines.strip().rsplit("\n", 1)[-1].strip()


def change_of(bug: Bug) -> Change:
    """Its last line stands for it: what is before only tells it apart."""
    return Change(bug.file, _last(bug.old), _last(bug.new) if bug.new.count("\n") == bug.old.count("\n") else "")


@app.command()
def main(only: Annotated[str, typer.Option(help="only files whose name holds this")] = "") -> None:
    """Status 1 where a change of a script goes unnoticed."""
    reasons = argued(ARGUED.read_text())
    chosen = {file: tests for file, tests in SCRIPTS.items() if only in file}
    if not chosen:
        raise typer.Exit(fail(f"no file with scripts holds {only!r} in its name", BAD_INPUT_STATUS))
    console = Console(highlight=False, markup=False)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        copy = Path(folder)
        copy_code(copy)
        unnoticed = [bug for file, tests in chosen.items() for bug in _try(copy, file, tests, reasons, console)]
    console.print(f"{len(unnoticed)} unnoticed")
    raise typer.Exit(1 if unnoticed else 0)


def _try(copy: Path, file: str, tests: tuple[str, ...], reasons: Mapping[Change, str], console: Console) -> list[Bug]:
    control = run_tests(copy, tests)
    if control.verdict is not Verdict.MISSED:
        raise typer.Exit(fail(f"without any change the tests of {file} do not pass: {control.by}", BAD_INPUT_STATUS))
    unnoticed = []
    bugs = list(bugs_of(file, (ROOT / file).read_text(), tests))
    for bug in bugs:
        if change_of(bug) not in reasons and try_bug(copy, bug).verdict is Verdict.MISSED:
            unnoticed.append(bug)
            console.print(f"no test notices: {change_of(bug)}")
    console.print(f"{file}: {len(bugs)} tried")
    return unnoticed


if __name__ == "__main__":
    sys.exit(run_app(app))
