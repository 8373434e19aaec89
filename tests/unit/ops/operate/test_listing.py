"""A table stays readable on a narrow terminal, with any long column."""

import io

import pytest
from rich.console import Console

from ops.lifecycle.versions import pages
from ops.lifecycle.versions.commands import _FOLDS
from ops.operate import listing

AUTHOR = f"rollout {'ab' * 16}-4"
MOVED = ["4", "2026-11-30T07:16:42Z", AUTHOR, "canary – → 64b2bdb0ad90; rule none → 50% with control", "by hand", ""]


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, width: int) -> io.StringIO:
    text = io.StringIO()
    monkeypatch.setattr(listing, "output", lambda: Console(file=text, width=width))
    return text


@pytest.mark.parametrize("width", [80])
def test_a_row_too_wide_for_the_terminal_is_a_block_of_titles_and_whole_words(shown: io.StringIO) -> None:
    listing.show_table(pages.LOGGED, [MOVED], folds=_FOLDS)
    lines = shown.getvalue().splitlines()
    assert [line.split()[0] for line in lines if line.strip()] == ["epoch", "when", "author", "what", "reason"]
    assert lines[2].split(maxsplit=1)[1].rstrip() == AUTHOR
    assert lines[3].split(maxsplit=1)[1].rstrip() == MOVED[3]


@pytest.mark.parametrize("width", [200])
def test_a_row_that_fits_is_one_line_below_the_titles(shown: io.StringIO) -> None:
    listing.show_table(pages.LOGGED, [MOVED], folds=_FOLDS)
    titles, row = shown.getvalue().splitlines()
    assert titles.split() == list(pages.LOGGED)
    assert MOVED[3] in row


@pytest.mark.parametrize("width", [40])
def test_a_table_without_titles_is_wrapped(shown: io.StringIO) -> None:
    listing.show_table(("name", "what"), [["short", "word " * 20]], folds={"what"}, header=False)
    assert shown.getvalue().startswith("short  word word")


@pytest.mark.parametrize("width", [30])
def test_a_long_word_in_a_block_is_cut_to_the_next_line_and_none_of_it_is_lost(shown: io.StringIO) -> None:
    listing.show_table(("id", "author", "a", "b"), [["1", AUTHOR, "x" * 20, ""]], folds={"author"})
    assert "".join(shown.getvalue().split()) == f"id1author{AUTHOR.replace(' ', '')}a{'x' * 20}"
