"""The conversations that the cache is measured with: enough of them, in both languages, each of its own words."""

from typing import Any

import pytest

from shared.errors import SettingsError
from shared.faq.terms import detect_language
from tests.bench.kv.conversations import choose, load_conversations

CONVERSATIONS = load_conversations()


def test_there_are_forty_half_of_them_chinese() -> None:
    """Twenty in each language at least."""
    languages = [one.language for one in CONVERSATIONS]
    assert len(CONVERSATIONS) >= 40
    assert languages.count("en") >= 20
    assert languages.count("zh") >= 20


@pytest.mark.parametrize("one", CONVERSATIONS, ids=lambda one: one.id)
def test_each_is_a_conversation_in_its_language(one: Any) -> None:
    """Five to seven turns, and no turn in the other language."""
    assert 5 <= len(one.turns) <= 7
    assert {detect_language(turn) for turn in one.turns} == {one.language}


def test_nothing_is_said_twice() -> None:
    """Nor does any conversation begin as another does, but for a greeting."""
    turns = [turn for one in CONVERSATIONS for turn in one.turns]
    assert all(turn.strip() for turn in turns)
    assert len({one.id for one in CONVERSATIONS}) == len(CONVERSATIONS)
    assert len(set(turns)) == len(turns)
    assert len({one.turns[0][:16] for one in CONVERSATIONS}) == len(CONVERSATIONS)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_a_choice_has_both_languages_alike(count: int) -> None:
    """They take turns, and nothing is chosen twice."""
    chosen = choose(CONVERSATIONS, count)
    languages = [one.language for one in chosen]
    assert len({one.id for one in chosen}) == count
    assert 0 <= languages.count("en") - languages.count("zh") <= 1


def test_where_one_language_is_used_up_the_other_goes_on() -> None:
    """All can be chosen, whatever they are."""
    lopsided = [one for one in CONVERSATIONS if one.language == "zh"][:3]
    assert choose(lopsided, 3) == lopsided


def test_more_than_there_are_cannot_be_chosen() -> None:
    """The message says how many there are."""
    with pytest.raises(SettingsError, match=f"--conversations 999: there are {len(CONVERSATIONS)}"):
        choose(CONVERSATIONS, 999)
