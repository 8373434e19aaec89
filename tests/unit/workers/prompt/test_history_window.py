"""Which turns a prompt holds: the last ones, each whole; and how seldom the first of them changes."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation.turn import Turn
from workers.prompt.history_window import HistoryWindow


def turn(name: str, window_start: str | None = None) -> Turn:
    return Turn(request_id=name, user="u", assistant="a", source="model", window_start=window_start)


def lived(window: HistoryWindow, num_turns: int, *, kept: int = 50, unheard: frozenset[int] = frozenset()) -> list[int]:
    """The number of the first turn in the prompt of each question; the question's own number where it has none.

    The history holds the last `kept` turns; of those in `unheard` nobody knows a prompt: a gateway answered.
    """
    turns: list[Turn] = []
    starts: list[int] = []
    for number in range(num_turns):
        seen = turns[-window.most :]  # as many are asked for
        start = window.start(seen)
        first = seen[start].request_id if start < len(seen) else str(number)
        starts.append(int(first))
        turns = [*turns, turn(str(number), None if number in unheard else first)][-kept:]
    return starts


def test_sliding_holds_the_last_turns() -> None:
    assert lived(HistoryWindow("sliding", 5), 9) == [0, 0, 0, 0, 0, 0, 1, 2, 3]


def test_strides_grow_and_then_drop_half_at_once() -> None:
    assert lived(HistoryWindow("strides", 5), 13) == [0, 0, 0, 0, 0, 0, 3, 3, 3, 6, 6, 6, 9]
    assert lived(HistoryWindow("strides", 4), 9) == [0, 0, 0, 0, 0, 3, 3, 3, 6]


@pytest.mark.parametrize("kind", ["sliding", "strides"])
def test_a_window_of_one_or_no_turn(kind: str) -> None:
    assert lived(HistoryWindow(kind, 1), 4) == [0, 0, 1, 2]  # type: ignore[arg-type]
    assert HistoryWindow(kind, 0).start([turn("0"), turn("1")]) == 2  # type: ignore[arg-type]


@given(st.integers(1, 50), st.integers(1, 130))
def test_the_window_strides_on_when_the_history_is_full(most: int, num_turns: int) -> None:
    window = HistoryWindow("strides", most)
    starts = lived(window, num_turns)
    assert starts == lived(window, num_turns, kept=num_turns)  # as if nothing had ever been forgotten
    sizes = [number - start for number, start in enumerate(starts)]
    assert max(sizes) <= most
    assert min(sizes[most:], default=most) >= (most + 1) // 2
    changes = [later - earlier for earlier, later in pairwise(starts) if later != earlier]
    assert set(changes) <= {most + 1 - (most + 1) // 2}


@given(st.integers(1, 6), st.integers(1, 40), st.frozensets(st.integers(0, 39)))
def test_answers_of_a_gateway_do_not_move_the_window(most: int, num_turns: int, unheard: frozenset[int]) -> None:
    starts = lived(HistoryWindow("strides", most), num_turns, unheard=unheard)
    for number, start in enumerate(starts):
        assert number - start <= most
        heard = [earlier for earlier in range(max(0, number - most), number) if earlier not in unheard]
        if heard and number - starts[heard[-1]] <= most:
            assert start == starts[heard[-1]]


def test_where_the_last_prompt_saw_no_history_the_next_extends_it() -> None:
    """Redis was away for one question; its answer's KV stands all the same."""
    turns = [turn("0", "0"), turn("1", "0"), turn("2", "2")]
    assert HistoryWindow("strides", 5).start(turns) == 2
    assert HistoryWindow("sliding", 5).start(turns) == 0


def test_questions_asked_at_once_share_a_window() -> None:
    turns = [turn("0", "0"), turn("2", "0"), turn("1", "0")]
    assert HistoryWindow("strides", 3).start(turns) == 0


def test_a_window_whose_first_turn_is_gone_begins_anew() -> None:
    turns = [turn("4", "3"), turn("5", "3")]
    assert HistoryWindow("strides", 5).start(turns) == 0
    assert HistoryWindow("strides", 2).start(turns) == 1


@given(st.integers(1, 50), st.integers(0, 49))
def test_what_is_too_long_gives_way_until_nothing_is_left(num_turns: int, start: int) -> None:
    start = min(start, num_turns - 1)
    for window in (HistoryWindow("sliding", 50), HistoryWindow("strides", 50)):
        at = start
        while at < num_turns:
            later = window.later(at, num_turns)
            assert at < later <= num_turns
            if window.kind == "strides":
                assert num_turns - later == (num_turns - at) // 2
            at = later
