"""Write the tables of docs/figures.toml into the pages: python -m tests.figures

A page has `<!-- figures: NAME -->` and, at the table's end, `<!-- end -->`.
"""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
PAGES: Final = sorted((ROOT / "docs").rglob("*.md"))
_TABLE: Final = re.compile(r"(<!-- figures: ([\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


def read_figures() -> dict[str, Any]:
    """Return the runs and machines of docs/figures.toml."""
    return tomllib.loads((ROOT / "docs" / "figures.toml").read_text())


def table(run: dict[str, Any], machines: dict[str, str]) -> str:
    """Return a run's origin and its rows as Markdown."""
    command = f"`{run['command']}`" if "`" not in run["command"] else run["command"]
    origin = f"*{run['date']}, {machines[run['machine']]}, commit {run['commit']}:* {command}. {run.get('note', '')}"
    head, *rows = (f"| {' | '.join(cells)} |".replace("|  |", "| |") for cells in (run["columns"], *run["rows"]))
    return "\n".join([origin.strip(), "", head, "|---" * len(run["columns"]) + "|", *rows])


def written(page: str, figures: dict[str, Any]) -> str:
    """Return the text of a page with today's tables."""

    def replaced(found: re.Match[str]) -> str:
        return f"{found[1]}{table(figures['runs'][found[2]], figures['machines'])}\n{found[3]}"

    return _TABLE.sub(replaced, page)


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(written(path.read_text(), read_figures()))
