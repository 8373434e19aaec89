"""What a page has its reader type exists: each command of `replyline`, and each of its options."""

import re
import subprocess
from pathlib import Path

import pytest

from tests.support.command_tree import replyline

ROOT = Path(__file__).parents[3]
REPLYLINE = replyline()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "ops").rglob("*.md")]
# Inline, or a line of an indented block; it ends where another command or a comment begins.
TYPED = re.compile(
    r"`(?:\.venv/bin/)?replyline ([^`]+)`|^    (?:\S+=\S+ )*(?:\.venv/bin/)?replyline ([^#|>&`\n]+)", re.MULTILINE
)


def unknown(line: str) -> str | None:
    """Return the first word of a command line that is neither a command nor an option."""
    command, words = REPLYLINE, line.split(" > ", maxsplit=1)[0].replace("…", " ").split()
    while words and words[0] in getattr(command, "commands", {}):
        command = command.commands[words.pop(0)]
    if getattr(command, "commands", {}) and words and re.fullmatch(r"[a-z][a-z-]*", words[0]):
        return words[0]
    options = {name for param in command.params for name in (*param.opts, *param.secondary_opts)} | {"--help"}
    return next((word for word in words if word.startswith("--") and word.split("=")[0] not in options), None)


def test_a_command_that_is_not_there_is_seen() -> None:
    assert [unknown(line) for line in ("ask Hello?", "aks", "topics grwo", "eval --limt 3")] == [
        None,
        "aks",
        "grwo",
        "--limt",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_commands_exist(page: Path) -> None:
    typed = [inline or block for inline, block in TYPED.findall(page.read_text())]
    assert [line for line in typed if unknown(line)] == []


def test_make_help_names_every_target() -> None:
    (targets,) = re.findall(r"^\.PHONY: (.*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    told = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, check=True, text=True).stdout
    assert sorted(re.findall(r"^  make (\S+) ", told, re.MULTILINE)) == sorted(targets.split())
