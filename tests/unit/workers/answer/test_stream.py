"""Deltas are gapless and make up the text; the terminal event carries it whole."""

from hypothesis import given
from hypothesis import strategies as st

from shared.wire.messages import Timings, Usage
from tests.support.samples.written_answers import TOKENIZER, add, answer, done, write


@given(
    st.text("ab你😀", max_size=20),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
    st.lists(st.booleans(), max_size=90),
)
def test_deltas_make_up_the_text_however_often_they_are_taken(text: str, stops: list[str], taken: list[bool]) -> None:
    written = answer(*stops)
    assert write(written, text, taken) == written.text
    ended = done(written)
    assert (ended.output_text, ended.source, ended.attempt) == (written.text, "model", 7)
    if not written.stopped:
        assert written.text == text


def test_nothing_new_is_no_delta() -> None:
    written = answer()
    assert written.take_delta() is None
    add(written, "a")
    assert written.take_delta() is not None
    assert written.take_delta() is None
    written.add(TOKENIZER.encode_text("你")[0])
    assert written.take_delta() is None, "half a character is not shown"


def test_what_was_held_for_a_stop_string_is_text_in_the_end() -> None:
    written = answer("\nUser:")
    add(written, "Hi\nUs")
    assert written.text == "Hi"
    written.finish()
    assert written.text == "Hi\nUs"


def test_a_stop_string_stops_and_is_not_part_of_the_text() -> None:
    written = answer("|")
    write(written, "a|b")
    assert (written.stopped, written.text) == (True, "a")


def test_a_replacement_carries_another_text_and_source() -> None:
    written = answer()
    add(written, "half")
    ended = written.replaced(
        text="FAQ", source="faq", status="completed", reason="stop", usage=Usage(), timings=Timings()
    )
    assert (ended.output_text, ended.source, ended.model) == ("FAQ", "faq", None)
