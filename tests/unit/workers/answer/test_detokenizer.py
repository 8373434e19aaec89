"""Text is shown as soon as it can be, whole characters only, and never a stop string."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.model.tokenizer import shown_text
from workers.answer.stream import Detokenizer


@st.composite
def split_bytes(draw: st.DrawFn, texts: st.SearchStrategy[bytes]) -> list[bytes]:
    """Bytes cut into tokens anywhere, empty ones (special tokens) too."""
    data = draw(texts)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]


def shown(tokens: Sequence[bytes], stops: Sequence[str] = ()) -> tuple[list[str], Detokenizer]:
    detokenizer = Detokenizer(stops)
    pieces = [detokenizer.feed(token) for token in tokens]
    return [*pieces, detokenizer.finish()], detokenizer


TEXTS = st.text(st.characters(exclude_characters="<[◁＜〈‹《&\\`【#*"), max_size=30) | st.text("aé你😀", max_size=12)
SMALL = st.text("ab你", max_size=24)
STOPS = st.lists(st.text("ab你", min_size=1, max_size=5), max_size=4)


@given(split_bytes(TEXTS.map(str.encode)))
def test_a_text_is_complete_however_it_is_split(tokens: list[bytes]) -> None:
    pieces, _ = shown(tokens)
    assert "".join(pieces) == b"".join(tokens).decode()
    assert pieces[-1] == "", "complete characters are not delayed"


@given(split_bytes(st.binary(max_size=30)), STOPS)
def test_any_bytes_are_shown_as_utf8_with_replacements(tokens: list[bytes], stops: list[str]) -> None:
    pieces, detokenizer = shown(tokens, stops)
    whole = shown_text(b"".join(tokens))
    assert "".join(pieces) == whole or detokenizer.stopped
    assert whole.startswith("".join(pieces))


@given(split_bytes(SMALL.map(str.encode)), STOPS)
def test_a_stop_string_is_never_shown_and_only_a_possible_prefix_of_one_is_delayed(
    tokens: list[bytes], stops: list[str]
) -> None:
    detokenizer, fed, seen = Detokenizer(stops), b"", ""
    for token in tokens:
        seen += detokenizer.feed(token)
        fed += token
        held = fed.decode("utf-8", "ignore")[len(seen) :]
        assert detokenizer.stopped or not held or any(stop.startswith(held) and stop != held for stop in stops)
    seen, text = seen + detokenizer.finish(), fed.decode()
    assert not any(stop in seen for stop in stops)
    assert detokenizer.stopped == any(stop in text for stop in stops)
    assert any(text.startswith(seen + stop) for stop in stops) if detokenizer.stopped else seen == text


@pytest.mark.parametrize(
    ("tokens", "stops", "pieces"),
    [
        ([b"a", "你".encode()[:2]], [], ["a", "", ""]),
        ([b"a", "你".encode()[:2], b"b"], [], ["a", "", "�b", ""]),
        ([b"Hi\n", b"Us", b"er", b": bye"], ["\nUser:"], ["Hi", "", "", "", ""]),
        ([b"Hi\n", b"Us", b"ual"], ["\nUser:"], ["Hi", "", "\nUsual", ""]),
        ([b"Hi\n", b"Us"], ["\nUser:"], ["Hi", "", "\nUs"]),
        ([b"a|b", b"c|", b"d"], ["|"], ["a", "", "", ""]),
    ],
)
def test_half_a_character_and_a_possible_stop_string_are_delayed(
    tokens: list[bytes], stops: list[str], pieces: list[str]
) -> None:
    assert shown(tokens, stops)[0] == pieces


@pytest.mark.parametrize(("text", "seen"), [("aab", "a"), ("abab", ""), ("aaab", "aa")])
def test_the_first_stop_string_ends_the_text(text: str, seen: str) -> None:
    assert "".join(shown([text.encode()], ["ab", "bab"])[0]) == seen
