"""Lookup finds what a search through every position finds."""

from hypothesis import given
from hypothesis import strategies as st

from workers.schedule.speculation.lookup import LONGEST_MATCH, Text, longest_match

tokens = st.lists(st.integers(0, 3), max_size=30)


def matched(ids: list[int], at: int, tail: list[int]) -> int:
    """Return how many tokens before `at` are the last ones of `tail`."""
    return next(
        (n for n in range(min(at, len(tail), LONGEST_MATCH), 0, -1) if ids[at - n : at] == tail[len(tail) - n :]), 0
    )


@given(tokens, tokens, st.integers(0, 30))
def test_a_text_has_the_longest_of_the_latest_eight_matches_the_latest_of_equal_ones(
    ids: list[int], tail: list[int], grown: int
) -> None:
    text = Text(ids[:grown])
    text.extend(ids[grown:])
    assert text.ids == ids
    ends = [at for at in range(len(ids)) if matched(ids, at, tail) >= 2][-8:]
    best = max(((matched(ids, at, tail), at) for at in ends), default=None)
    found = text.find(tail)
    assert (found and (found.length, found.at)) == best


@given(st.lists(tokens, max_size=4), tokens)
def test_of_several_texts_the_first_with_the_longest_match_is_found(many: list[list[int]], tail: list[int]) -> None:
    texts = [Text(ids) for ids in many]
    lengths = [found.length if (found := text.find(tail)) else 0 for text in texts]
    match = longest_match(texts, tail)
    if match is None:
        assert not any(lengths)
    else:
        assert match.length == max(lengths)
        assert match.text is texts[lengths.index(max(lengths))]


def test_a_token_that_is_repeated_forever_is_compared_a_few_times() -> None:
    """A customer may write it, and each step looks it up."""

    class Counted(int):
        compared = 0

        def __eq__(self, other: object) -> bool:
            Counted.compared += 1
            return int(self) == other

        __hash__ = int.__hash__

    text = Text([Counted(7)] * 5_000)
    Counted.compared = 0
    assert text.find([7] * 100) is not None
    assert Counted.compared < 20 * LONGEST_MATCH
