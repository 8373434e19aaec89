"""Deltas are gapless and make up the text; the terminal event carries it whole."""

from hypothesis import given
from hypothesis import strategies as st

from shared.messages import ReplyDelta, Timings, Usage
from shared.tokenizer import Tokenizer
from workers.answer import Answer

TOKENIZER = Tokenizer.byte_level()


def answer(*stops: str) -> Answer:
    return Answer(request_id="r", session_id="s", attempt=7, token_bytes=TOKENIZER.token_bytes, stops=stops)


def write(written: Answer, text: str) -> None:
    for token_id in TOKENIZER.encode_text(text):
        written.add(token_id)


def assert_gapless(deltas: list[ReplyDelta], text: str) -> None:
    assert "".join(delta.delta for delta in deltas) == text
    assert [delta.seq for delta in deltas] == list(range(len(deltas)))
    offset = 0
    for delta in deltas:
        assert delta.offset == offset
        assert delta.delta
        assert (delta.request_id, delta.session_id, delta.attempt) == ("r", "s", 7)
        offset += len(delta.delta)


@given(
    st.text("ab你😀", max_size=20),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
    st.lists(st.booleans(), max_size=90),
)
def test_deltas_make_up_the_text_however_often_they_are_taken(text: str, stops: list[str], taken: list[bool]) -> None:
    written, deltas = answer(*stops), []
    takes = iter(taken)
    for token_id in TOKENIZER.encode_text(text):
        written.add(token_id)
        if next(takes, True) and (delta := written.take_delta()) is not None:
            deltas.append(delta)
        if written.stopped:
            break
    written.finish()
    if (delta := written.take_delta()) is not None:
        deltas.append(delta)
    assert_gapless(deltas, written.text)
    done = written.done(status="completed", reason="stop", usage=Usage(), timings=Timings(), model="m")
    assert (done.output_text, done.source, done.attempt) == (written.text, "model", 7)
    if not written.stopped:
        assert written.text == text


def test_nothing_new_is_no_delta() -> None:
    written = answer()
    assert written.take_delta() is None
    write(written, "a")
    assert written.take_delta() is not None
    assert written.take_delta() is None
    written.add(TOKENIZER.encode_text("你")[0])
    assert written.take_delta() is None, "half a character is not shown"


def test_what_was_held_for_a_stop_string_is_text_in_the_end() -> None:
    written = answer("\nUser:")
    write(written, "Hi\nUs")
    assert written.text == "Hi"
    written.finish()
    assert written.text == "Hi\nUs"


def test_a_stop_string_stops_and_is_not_part_of_the_text() -> None:
    written = answer("|")
    write(written, "a|b")
    written.finish()
    assert (written.stopped, written.text) == (True, "a")


def test_a_replacement_carries_another_text_and_source() -> None:
    written = answer()
    write(written, "half")
    done = written.replaced(
        text="FAQ", source="faq", status="completed", reason="stop", usage=Usage(), timings=Timings()
    )
    assert (done.output_text, done.source, done.model) == ("FAQ", "faq", None)
