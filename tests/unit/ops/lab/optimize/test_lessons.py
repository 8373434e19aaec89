"""The examples that a student learns from."""

from pathlib import Path

import pytest

from ops.lab.optimize.lessons import faq_examples, read_examples
from shared.errors import SettingsError


def file(folder: Path, *lines: str) -> Path:
    path = folder / "examples.jsonl"
    path.write_text("\n".join(lines))
    return path


def test_the_faqs_halves_share_no_entry_and_no_wording() -> None:
    """Held-out examples are never shown: neither as an answer nor next to one."""
    dev, held_out = faq_examples("dev"), faq_examples("held_out")
    assert len(dev) > 100
    assert len(held_out) > 100
    shown = {entry.id for example in dev for entry in example.grounding}
    assert shown.isdisjoint(entry.id for example in held_out for entry in example.grounding)
    assert {example.question for example in dev}.isdisjoint(example.question for example in held_out)
    for example in dev:
        assert example.answer in [entry.answer for entry in example.grounding]


def test_a_file_holds_questions_answers_entries_and_turns(tmp_path: Path) -> None:
    path = file(
        tmp_path,
        '{"question": "q", "answer": "a", "grounding": [{"id": "i", "question": "Q", "answer": "A"}]}',
        "",
        '{"question": "and then?", "answer": "b", "turns": [{"user": "q", "assistant": "a"}]}',
    )
    first, second = read_examples(path, answered=True)
    assert (first.answer, first.grounding[0].id) == ("a", "i")
    assert second.turns[0].assistant == "a"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (["{"], "line 1"),
        (['{"question": "q", "answer": "a"}', '{"question": 1}'], "line 2"),
        (['{"question": "q"}'], "line 1: no answer; write one, or use a --teacher"),
        (['{"question": "q", "anwser": "a"}'], "line 1"),
        (["[" * 100_000], "line 1"),
        ([""], "has no examples"),
    ],
)
def test_a_bad_line_is_named(tmp_path: Path, lines: list[str], message: str) -> None:
    with pytest.raises(SettingsError, match=message):
        read_examples(file(tmp_path, *lines), answered=True)
