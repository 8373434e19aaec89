"""Sentence ends are found at the same positions in any split of the text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.faq.speech.sentences import LOOKAHEAD_CHARS, MAX_CHARS, next_cut, sentences

TEXTS = st.text('ab1 .!?。！\n"”),;，', max_size=120) | st.text("word, ", min_size=200, max_size=600)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Yes. You can! Why? So.", ["Yes.", " You can!", " Why?", " So."]),
        ("It is 14.00 at shop.com, e.g. AX-3391-B. Good.", ["It is 14.00 at shop.com, e.g. AX-3391-B.", " Good."]),
        ("See No. 5. No. You cannot.", ["See No. 5.", " No.", " You cannot."]),
        ("Open until 8 p.m. on Mondays. We close at 8 p.m. Come early.", [
            "Open until 8 p.m. on Mondays.", " We close at 8 p.m.", " Come early."]),
        ("1. Open it.\n2. Close it.", ["1. Open it.", "\n2. Close it."]),
        ("Steps\n\n- one\n- two", ["Steps", "\n\n- one", "\n- two"]),
        ('He said "no." Then left.', ['He said "no."', " Then left."]),
        ("可以。请在 30 天内退货！“好的。”谢谢", ["可以。", "请在 30 天内退货！", "“好的。”", "谢谢"]),
        ("It costs €30. You pay.", ["It costs €30.", " You pay."]),
        ("Wait... what?! Really.", ["Wait...", " what?!", " Really."]),
        ("Dear Mr. Smith, hello. Bye.", ["Dear Mr. Smith, hello.", " Bye."]),
    ],
)  # fmt: skip
def test_sentences_are_told_apart(text: str, expected: list[str]) -> None:
    assert sentences(text) == expected


def test_an_end_counts_once_the_following_text_confirms_it() -> None:
    assert next_cut("It is 14.") is None
    assert next_cut("It is 14.0") is None
    assert next_cut("No. ") is None, "5 may follow"
    assert next_cut("Done.") is None
    assert next_cut("Done. ") == (5, True)
    assert next_cut("好。") is None, "a closing quote may follow"
    assert next_cut("好。好") == (2, True)


@given(TEXTS)
def test_sentences_make_up_the_text(text: str) -> None:
    assert "".join(sentences(text)) == text


@given(TEXTS, st.integers(0, 600))
def test_later_text_moves_no_end(text: str, length: int) -> None:
    early = next_cut(text[:length])
    assert early is None or next_cut(text) == early


@given(TEXTS)
def test_no_text_waits_for_ever(text: str) -> None:
    cut = next_cut(text)
    assert cut is not None or len(text) < MAX_CHARS + LOOKAHEAD_CHARS
    assert cut is None or 0 < cut.length <= MAX_CHARS + LOOKAHEAD_CHARS


def test_a_sentence_without_an_end_is_cut_at_a_clause_then_between_words_then_anywhere() -> None:
    clause = "word " * 20 + "word, " + "word " * 60
    assert next_cut(clause) == (clause.index(",") + 1, False)
    words = "word " * 80
    cut = next_cut(words)
    assert cut is not None
    assert (cut.whole, words[cut.length - 1 : cut.length + 1]) == (False, "d ")
    assert next_cut("字" * 400) == (MAX_CHARS, False)
