"""Wherever a document says how many answers are right it says how many are without a hedge."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("name", ["README.md", "docs/measured.md", "docs/evaluation.md"])
def test_a_document_states_both(name: str) -> None:
    """Each table of how many answers are right, and the README's row."""
    text = (ROOT / name).read_text()
    parts = text.splitlines() if name == "README.md" else re.split(r"\n(?!\|)", text)
    stated = [part for part in parts if re.search(r"\| right answers|\| English,? right", part)]
    assert stated
    assert [part for part in stated if "without a hedge" not in part] == []
