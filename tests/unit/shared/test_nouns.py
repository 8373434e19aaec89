"""A message uses the singular for one thing."""

import pytest

from shared.nouns import counted


@pytest.mark.parametrize(
    ("number", "wanted"),
    [(0, "0 workers"), (1, "1 worker"), (1.2, "1 worker"), (2, "2 workers"), (1e6, "1,000,000 workers")],
)
def test_a_number_has_its_noun(number: float, wanted: str) -> None:
    assert counted(number, "worker") == wanted


def test_a_plural_and_a_verb_may_be_given() -> None:
    assert [counted(number, "entry is", "entries are") for number in (1, 3)] == ["1 entry is", "3 entries are"]
