"""Deltas are gapless and make up the text; the terminal event carries it whole."""

from hypothesis import given
from hypothesis import strategies as st

from shared.wire.outcome import Grounding, Timings, Usage
from tests.support.samples.written_answers import TOKENIZER, add, answer, done, write
from workers.answer.guard import FactGuard
from workers.answer.stream import Answer


@given(
    st.text("ab你😀", max_size=20),
    st.lists(st.text("ab", min_size=1, max_size=3), max_size=2),
    st.lists(st.booleans(), max_size=90),
)
def test_deltas_form_the_text_however_often_they_are_taken(text: str, stops: list[str], taken: list[bool]) -> None:
    written = answer(*stops)
    assert write(written, text, taken) == written.text
    ended = done(written)
    assert (ended.output_text, ended.source, ended.attempt) == (written.text, "model", 7)
    if not written.stopped:
        assert written.text == text


def test_a_model_answer_names_its_version_from_the_first_delta_on() -> None:
    written = answer()
    deltas = [*add(written, "ab", [True, True]), written.so_far()]
    assert {delta.revision for delta in deltas} == {done(written).revision} == {"v7"}
    assert done(written).lane == "canary"
    usage, timings = Usage(), Timings()
    courtesy = written.done(
        status="completed", reason="stop", usage=usage, timings=timings, instead=("Hi!", "courtesy")
    )
    assert courtesy.revision is None


def test_nothing_new_is_no_delta() -> None:
    written = answer()
    assert written.pop_delta() is None
    add(written, "a")
    assert written.pop_delta() is not None
    assert written.pop_delta() is None
    written.add(TOKENIZER.encode_text("你")[0])
    assert written.pop_delta() is None, "half a character is not shown"


# --- guarded: a cut answer frees its slot immediately

ENTRY = Grounding(id="cost", question="What is delivery?", answer="Delivery costs €4.90. Express is €12.90.")
TEXTS = st.lists(
    st.sampled_from(
        ["Delivery costs €4.90. ", "It is €9. ", "你好。", "😀", "Well, ", "30 days", "\n", "END", "E", "."]
    ),
    max_size=20,
).map("".join)


def guarded(*stops: str) -> Answer:
    return answer(*stops, guard=FactGuard([ENTRY], ()))


@given(TEXTS, st.lists(st.booleans(), max_size=200))
def test_deltas_and_the_end_contain_the_same_text(text: str, taken: list[bool]) -> None:
    written = guarded("END")
    deltas = write(written, text, taken)
    ended = done(written)
    assert deltas == written.text == ended.output_text
    assert written.so_far().delta == written.text
    alone = FactGuard([ENTRY], ())
    assert ended.output_text == alone.feed(text.partition("END")[0]) + alone.finish()
    assert ended.replaced == alone.replaced
    assert "END" not in written.text


@given(TEXTS, st.lists(st.booleans(), max_size=200))
def test_the_same_tokens_again_make_the_same_answer(text: str, taken: list[bool]) -> None:
    first, second = guarded(), guarded()
    write(first, text)
    write(second, text, taken)
    assert done(first) == done(second)


def test_the_source_of_the_answer_is_reported() -> None:
    for text, source in {"Delivery costs €4.90.": "model", "Hello! It is €9.": "mixed", "It is €9.": "faq"}.items():
        written = guarded()
        write(written, text)
        assert done(written).source == source, text
        assert [each.id for each in done(written).replaced] == ([] if source == "model" else ["cost"])


def test_an_answer_with_all_text_removed_says_so() -> None:
    written = answer(guard=FactGuard([], ()))
    write(written, "It is €9.")
    assert (written.withheld, written.text, written.so_far().delta) == (True, "", "")
    assert not guarded().withheld


def test_the_first_text_is_waiting_once_its_sentence_has_ended() -> None:
    written = guarded()
    for token_id in TOKENIZER.encode_text("Hello!"):
        written.add(token_id)
        assert not written.begins
    written.add(TOKENIZER.encode_text(" ")[0])
    assert written.begins
    written.pop_delta()
    assert not written.begins


@given(TEXTS, st.sampled_from([(), ("END",)]))
def test_an_answer_that_has_begun_is_read_when_its_next_delta_is_taken(text: str, stops: tuple[str, ...]) -> None:
    """But a stop string is found immediately: the sequence must end."""
    written = guarded(*stops)
    add(written, "Hello! ", [False] * 6 + [True])
    read = [written.add(token_id) for token_id in TOKENIZER.encode_text(text)]
    assert all(read) if stops else not any(read)
    if not stops:
        assert not written.stopped
    elif "END" in text:
        assert written.stopped  # without it a circle may have ended the answer


def test_circles_are_found_with_the_delta_after_them() -> None:
    written = guarded()
    add(written, "Hello, I am glad to help. " * 2, [True] * 27)
    assert not written.stopped
    written.pop_delta()
    assert (written.stopped, written.text) == (True, "Hello, I am glad to help.")
