"""A figure that README or docs state is one of docs/figures.toml, with its date, machine, commit and command."""

import datetime as dt
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.figures import PAGES, ROOT, read_figures, written

FIGURES: Final = read_figures()
RUNS: Final[dict[str, Any]] = FIGURES["runs"]
READMES: Final = [ROOT / "README.md", ROOT / "README.zh.md"]
OWN: Final = {ROOT / name for name in (*FIGURES["own"], "docs/settings.md")}
STATED: Final = [page for page in (*READMES, *PAGES) if page.parent.name != "decisions" and page not in OWN]
"""Pages whose figures are in the file. A decision says what was tried at its time, settings.md what a default is."""
_NUMBER: Final = re.compile(r"\d+(?:,\d{3})*(?:\.\d+)?(?:e-\d+)?")
_MEASURED: Final = re.compile(r"(\d+(?:,\d{3})*(?:\.\d+)?)(?: ?×| tok/s| µs| KiB)")
_TIMED: Final = re.compile(r"(\d+(?:,\d{3})*(?:\.\d+)?)(?: ?×| (?:ms|s|MB|MiB|GiB|GB|%)\b)")
_SHARE: Final = re.compile(r"(?<![\d.,])\d\.\d{2,}(?![\d.×])")
_DECIMAL: Final = re.compile(r"\d+(?:,\d{3})*\.\d+")
_BLOCK: Final = re.compile(r"<!-- figures: .*?<!-- end -->|```.*?```|`[^`\n]*`|^    [^\n]*$", re.DOTALL | re.MULTILINE)
_STATISTIC: Final = re.compile(r"\bp50\b|\bp99\b|\bmedian\b|llama-server's|measured")


def numbers(text: str) -> set[str]:
    return set(_NUMBER.findall(text))


KNOWN: Final = {name: numbers(f"{run.get('note', '')} {run['rows']}") for name, run in RUNS.items()}


def figures_of(line: str) -> list[str]:
    """Return the measured figures of a line: ratios, rates, amounts next to a statistic, shares of two digits."""
    return (_TIMED if _STATISTIC.search(line) else _MEASURED).findall(line) + _SHARE.findall(line)


def stated(page: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each line outside of blocks and rendered tables, with its figures."""
    for line in _BLOCK.sub("", page.read_text()).splitlines():
        row = page in READMES and line.startswith("|")
        if found := _DECIMAL.findall(line) if row else figures_of(line):
            yield line, found


def test_a_figure_is_recognised() -> None:
    assert figures_of("eight clients: 2.0× of llama-server, 869 tok/s") == ["2.0", "869"]
    assert figures_of("whole path p50 / p99: 13.5 ms") == ["13.5"]
    assert figures_of("answered in time: 0.85 of them, 10.15 or 1.37.0") == ["0.85"]
    assert figures_of("closes it after 5 s (64 KiB at most)") == ["64"]
    assert figures_of("a session.start must come within 5 s") == []


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_a_date_machine_commit_and_command(name: str) -> None:
    run = RUNS[name]
    assert isinstance(run["date"], dt.date)
    assert run["machine"] in FIGURES["machines"]
    assert re.fullmatch(r"[0-9a-f]{8}", run["commit"])
    assert run["command"]
    assert {len(row) for row in run["rows"]} == {len(run["columns"])}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_tables_are_those_of_the_file(page: Path) -> None:
    """Else type: python -m tests.figures."""
    assert page.read_text() == written(page.read_text(), FIGURES)


@pytest.mark.parametrize("page", STATED, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_stated_figure_is_in_the_file(page: Path) -> None:
    """All figures of one line are of one run, or constants of the product."""
    constants = set(FIGURES["constants"])
    unknown = [
        line for line, found in stated(page) if not any(set(found) <= known | constants for known in KNOWN.values())
    ]
    assert unknown == []


def test_each_run_is_on_a_page() -> None:
    shown = set(re.findall(r"<!-- figures: ([\w-]+) -->", "".join(page.read_text() for page in PAGES)))
    assert set(RUNS) == shown


def test_both_readmes_have_the_same_commands_and_figures() -> None:
    """Rows of the table of figures, by their numbers; blocks of commands, without comments."""
    english, chinese = ([*_rows(page.read_text())] for page in READMES)
    assert english
    assert english == chinese
    blocks = [
        re.sub(r" *#.*", "", "\n".join(re.findall(r"^    .*$", page.read_text(), re.MULTILINE))) for page in READMES
    ]
    assert blocks[0] == blocks[1]


def _rows(text: str) -> Iterator[list[str]]:
    for row in re.findall(r"^\|.*\d.*\|$", text, re.MULTILINE):
        yield sorted(_NUMBER.findall(re.sub(r"`[^`]*`|\]\([^)]*\)", "", row)))
