"""Each page of docs/decisions/ is short and has the same parts."""

import re
from pathlib import Path

import pytest

PAGES = sorted((Path(__file__).parents[3] / "docs" / "decisions").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_decision_has_at_most_200_words_and_says_what_was_asked_and_decided(page: Path) -> None:
    text = page.read_text()
    assert len([word for word in text.split() if re.search(r"\w", word)]) <= 200
    assert text.startswith(f"# {int(page.stem[:4])}. ")
    assert "**Question.**" in text
    assert "**Decision.**" in text


def test_no_two_decisions_have_the_same_number() -> None:
    numbers = [page.stem[:4] for page in PAGES]
    assert len(set(numbers)) == len(numbers)
