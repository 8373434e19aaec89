"""The conversations that the cache is measured with: enough of them, in both languages, each of its own words."""

import json
from pathlib import Path
from typing import Any

import pytest

from ops.texts.conversations import choose, load_conversations, read_conversations
from shared.errors import SettingsError
from shared.faq.terms import detect_language

CONVERSATIONS = load_conversations()


def conversation(**fields: Any) -> dict[str, Any]:
    turns = ["Where is my parcel?", "And when?", "Why so late?", "Who signs for it?", "Thank you."]
    return {"id": "a", "language": "en", "turns": turns, **fields}


def read(*conversations: dict[str, Any]) -> object:
    return read_conversations(json.dumps(conversations).encode(), "some.json")


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


@pytest.mark.parametrize(
    ("wrong", "named"),
    [
        ([conversation(turns=["Hello.", "Bye."])], "a: 2 turns"),
        ([conversation(turns=["One.", "Two.", "  ", "Four.", "Five."])], "a: an empty turn"),
        ([conversation(turns=["Same.", "Same.", "Three.", "Four.", "Five."])], "'Same.' is said in a too"),
        ([conversation(), conversation()], "a: that id is there twice"),
        ([conversation(), conversation(id="b")], "b: 'Where is my parcel"),
        ([conversation(language="zh")], "a: language is zh"),
        ([conversation(language="fr")], "some.json: Invalid enum value 'fr'"),
        ([conversation(answers=[])], "answers"),
    ],
)
def test_a_fault_is_named_with_its_conversation(wrong: list[dict[str, Any]], named: str) -> None:
    """Each line has the file's name."""
    with pytest.raises(SettingsError, match=named) as raised:
        read(*wrong)
    assert all(line.startswith("some.json: ") for line in str(raised.value).splitlines())


@pytest.mark.parametrize("data", [b"", b"{", b"\xff", b"[1]"])
def test_what_is_no_json_of_conversations_is_one_line(data: bytes) -> None:
    """And no traceback."""
    with pytest.raises(SettingsError, match=r"^some\.json: .+$"):
        read_conversations(data, "some.json")


def test_a_file_that_is_not_there_is_named() -> None:
    """With the system's reason."""
    with pytest.raises(SettingsError, match=r"/nowhere/at/all\.json: cannot be read: No such file"):
        load_conversations(Path("/nowhere/at/all.json"))
