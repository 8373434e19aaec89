"""The list of settings: for this process on a terminal, and with the default values as docs/settings.md."""

from collections.abc import Iterator

from rich.console import Console

from ops.operate.listing import show_table
from shared.settings import Settings, by_question

_TITLES = ("variable", "value", "meaning")
_HEAD = """\
# Settings

Each process reads its environment, and below it a TOML file (docs/production.md). A value out of range stops it: exit
status 2, and one line that names the variable. This page is made by `replyline settings --markdown`;
`replyline settings` shows the values here.
"""


def show(settings: Settings) -> None:
    """Print every setting with its current value, one table per topic."""
    for question, rows in by_question(settings):
        Console().print(f"\n# {question}", style="bold", highlight=False, soft_wrap=True)
        show_table(_TITLES, rows, folds=_TITLES[1:], header=False)


def written_page() -> str:
    """Return docs/settings.md: every setting with its default."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    yield _HEAD
    for question, rows in by_question():
        yield f"## {question}\n\n| variable | default | meaning |\n|---|---|---|"
        for variable, value, meaning in rows:
            default = f"`{value}`" if value else ""
            yield f"| `{variable}` | {default} | {meaning} |".replace("  ", " ")
        yield ""
