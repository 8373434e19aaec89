"""Questions have the wanted length, differ, and a mix is what it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.lab.texts.prompts import LENGTHS, mixed_lengths, parse_mix, question
from shared.errors import SettingsError


@given(num_tokens=st.integers(min_value=1, max_value=300), seed=st.integers())
def test_a_question_has_as_many_words_as_tokens_wanted(num_tokens: int, seed: int) -> None:
    """And it is the same again for the same seed."""
    text = question(num_tokens, seed)
    assert len(text.split()) == num_tokens
    assert text == question(num_tokens, seed)


def test_a_mix_is_shares_by_name() -> None:
    """Spaces do not matter."""
    assert parse_mix("short=0.8, long=0.2") == {"short": 0.8, "long": 0.2}


@pytest.mark.parametrize(
    "text", ["", "short", "short=x", "tiny=1", "short=0.5,short=0.5", "short=-1,long=2", "short=0.5"]
)
def test_a_wrong_mix_is_one_line(text: str) -> None:
    """It names the option and what was given."""
    with pytest.raises(SettingsError, match="--mix") as caught:
        parse_mix(text)
    assert "\n" not in str(caught.value)


def test_lengths_follow_the_shares() -> None:
    """Four short ones for each long one, in no order."""
    lengths = mixed_lengths({"short": 0.8, "long": 0.2}, 10_000, seed=3)
    assert set(lengths) == {LENGTHS["short"], LENGTHS["long"]}
    assert lengths.count(LENGTHS["short"]) == pytest.approx(8_000, rel=0.05)
