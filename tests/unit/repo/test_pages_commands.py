"""What a page names exists: commands and their options, metrics, fields, log events, topics, messages."""

import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import pytest

from shared.wire.topics import TopicNames
from tests.support.command_tree import replyline

ROOT = Path(__file__).parents[3]
REPLYLINE = replyline()
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "ops").rglob("*.md")]
# Inline, or a line of an indented block; it ends where another command or a comment begins.
TYPED = re.compile(
    r"`(?:\.venv/bin/)?replyline ([^`]+)`|^    (?:\S+=\S+ )*(?:\.venv/bin/)?replyline ([^#|>&`\n]+)", re.MULTILINE
)
# Names of other programs' variables and fields, and a figure whose name is composed.
FOREIGN: Final = {
    "elb_request_count_8c0756",
    "evicted_keys",
    "http_code",
    "image_url",
    "logit_bias",
    "misled_en",
    "misled_zh",
    "ssl_keyfile",
}
IN_CODE: Final = re.compile(r"`([^`\n]+)`")
NAME: Final = re.compile(r"\b[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b")


@cache
def product() -> str:
    """Return the text of all files that are installed or shown, other than pages."""
    folders = [ROOT / name for name in ("gateway", "workers", "shared", "ops", "examples")]
    kinds = {".py", ".js", ".json", ".yml", ".yaml", ".proto", ".toml", ".conf", ".md", ".c", ".h"}
    files = [each for folder in folders for each in folder.rglob("*") if each.suffix in kinds]
    files = [each for each in files if "node_modules" not in each.parts and each not in PAGES]
    return "\n".join(each.read_text(errors="ignore") for each in (*files, ROOT / "pyproject.toml"))


@cache
def names_of_tests() -> set[str]:
    return {each.stem for each in (ROOT / "tests").rglob("*.py")}


def strange(page: str) -> list[str]:
    """Return the names in a page's code that no file of the product has and that are no test's."""
    named = {name for code in IN_CODE.findall(page) for name in NAME.findall(code)}
    return sorted(each for each in named - names_of_tests() - FOREIGN if each not in product())


def symptoms() -> Iterator[str]:
    """Yield the messages that the page on what does not work has its reader compare with."""
    table = (ROOT / "docs" / "choosing.md").read_text().partition("## It does not work\n")[2]
    for seen in re.findall(r"^\| ([^|]+) \|", table.partition("The exit status")[0], re.MULTILINE):
        yield from re.findall(r'"([^"]+)"', seen)


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


def test_a_name_that_is_gone_is_seen() -> None:
    assert strange("`replyline_gone_total{source}` and `replyline_ready`, `no_such_event` in the log") == [
        "no_such_event",
        "replyline_gone_total",
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_pages_names_exist(page: Path) -> None:
    """Metrics, fields, codes, log events. What was true once is named by decisions and the changelog alone."""
    if "decisions" not in page.parts and page.name != "CHANGELOG.md":
        assert strange(page.read_text()) == []


@pytest.mark.parametrize("message", list(symptoms()))
def test_a_message_that_the_reader_compares_with_is_one_of_ours(message: str) -> None:
    words = re.escape(message.replace("…", "")).replace("\\ ", " ")
    assert re.search(re.sub(r"\d+", r"\\{[^}]+\\}", words), product()), message


def test_the_page_of_the_protocol_has_every_topic() -> None:
    table = (ROOT / "docs" / "protocol.md").read_text().partition("## Kafka\n")[2].partition("**Requests**")[0]
    named = {f"chat.requests{name}" if name.startswith(".") else name for name in re.findall(r"`([a-z.-]+)`", table)}
    assert set(TopicNames().all(request_partitions=1, reply_partitions=1)) - named == set()


@pytest.mark.parametrize("folder", ["gateway", "workers", "shared"])
def test_the_layout_names_each_room_and_no_other(folder: str) -> None:
    (row,) = re.findall(rf"^\| `{folder}/` \| (.*) \|$", (ROOT / "CONTRIBUTING.md").read_text(), re.MULTILINE)
    named = set(re.findall(r"`([a-z_]+)`", row))
    rooms = {each.parent.name for each in (ROOT / folder).glob("*/__init__.py")}
    others = {each.stem for pattern in ("*.py", "doors/*", "widget") for each in (ROOT / folder).glob(pattern)}
    assert (rooms - named, named - rooms - others) == (set(), set())
