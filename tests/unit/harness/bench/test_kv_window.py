"""The cell that compares the ways a prompt's window moves: which conversations, which turns, what is said of them."""

import pytest

from ops.texts.conversations import Conversation, load_conversations
from shared.errors import SettingsError
from tests.bench.kv.client import Answered
from tests.bench.kv.table import Cells, ratios_of, show_cells
from tests.bench.kv.window import MODES, TURNS, long_conversations, run_of


def answers(ttft_ms: float, later_ttft_ms: float) -> list[Answered]:
    """Turns 1 to 10 of a conversation."""
    return [
        Answered(
            turn=turn,
            question="?",
            ttft_ms=ttft_ms if turn < 6 else later_ttft_ms,
            prompt_tokens=100 * turn,
            cached_tokens=100 * turn - 30,
            source="model",
            status="completed",
        )
        for turn in range(1, TURNS + 1)
    ]


def test_a_long_conversation_is_two_of_one_language_and_says_nothing_twice() -> None:
    every = load_conversations()
    language = {turn: one.language for one in every for turn in one.turns}
    some = long_conversations(every, 6)
    assert [one.language for one in some] == ["en", "zh"] * 3
    for one in some:
        assert len(one.turns) == len(set(one.turns)) >= TURNS
        assert {language[turn] for turn in one.turns} == {one.language}


def test_more_long_conversations_than_there_are_is_one_line() -> None:
    few = [Conversation(id="a", language="en", turns=("a",) * 5), Conversation(id="b", language="zh", turns=("b",) * 5)]
    with pytest.raises(SettingsError, match="1 long conversations: there are 0"):
        long_conversations(few, 1)


def test_the_ratio_is_of_the_turns_after_the_window_is_full() -> None:
    cells = Cells(window=[run_of("sliding", answers(100.0, 1_000.0)), run_of("strides", answers(900.0, 250.0))])
    assert ratios_of(cells).window_ttft_ratio == 0.25


def test_the_table_has_both_modes_side_by_side() -> None:
    cells = Cells(window=[run_of(mode, answers(100.0, 1_000.0)) for mode in MODES])
    said = show_cells(cells, ratios_of(cells))
    for mode in MODES:
        assert f"| {mode} | 100.00 | 1,000 | 1,000 | 1,000 | 800.00 | 30.00 | 0 |" in said


def test_a_turn_that_was_not_answered_is_counted_and_not_measured() -> None:
    silent = Answered(turn=7, question="?", error="overloaded")
    run = run_of("sliding", [*answers(1.0, 2.0), silent])
    assert run.not_by_model == 1
    assert [one.ttft_ms for one in run.of(7, 7)] == [2.0, None]
