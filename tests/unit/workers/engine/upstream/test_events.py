"""Bytes of an upstream's stream become pieces of text, whatever it sends, and its usage is believed where it can be."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.upstream import DONE, chunk, usage
from workers.engine.upstream.events import Counted, Events, Piece, believed
from workers.engine.upstream.failures import UpstreamFailure

STREAM = (
    b": hello\r\n\r\nevent: x\n" + chunk("Gr\u00fc\u00dfe, ") + chunk("\u4f60\u597d") + chunk(finish="length") + DONE
)


def read(*parts: bytes) -> list[Piece]:
    events = Events()
    return [piece for part in parts for piece in events.feed(part)] + list(events.close())


@given(st.lists(st.integers(0, len(STREAM)), max_size=6))
def test_the_pieces_do_not_depend_on_where_the_bytes_are_cut(cuts: list[int]) -> None:
    ends = [0, *sorted(cuts), len(STREAM)]
    parts = [STREAM[start:end] for start, end in pairwise(ends)]
    assert read(*parts) == [Piece("Gr\u00fc\u00dfe, "), Piece("\u4f60\u597d"), Piece("", "length")]


@given(st.binary(max_size=400))
def test_any_bytes_are_pieces_or_a_named_failure(data: bytes) -> None:
    for sent in (data, b"data: " + data + b"\n", b"data:" + data.replace(b"\n", b"") + b"\n\n"):
        try:
            read(sent)
        except UpstreamFailure as failure:
            named = failure.cause
            assert named == "broken_stream"


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"data: {\n", "broken_stream"),
        (b'data: {"choices": [{"delta": {"content": 7}}]}\n', "broken_stream"),
        (b"data: " + b"[" * 60_000 + b"\n", "broken_stream"),
        (b'data: {"error": {"message": "the customer said ..."}}\n', "failed"),
        (b"data: " + b"x" * 70_000, "line_too_long"),
        (chunk() * 100_000, "too_much"),
    ],
)
def test_what_is_no_chunk_has_a_name_and_is_not_quoted(sent: bytes, cause: str) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        read(sent)
    assert caught.value.cause == cause
    assert "customer" not in str(caught.value)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'data: {"choices": [{"delta": {"content": "hi \\ud83d"}}]}\n', "hi \ufffd"),
        (b'data: {"choices": [{"delta": {"content": "hi \\ud83d\\ude00"}}]}\n', "hi \U0001f600"),
        (b'data: {"choices": [{"delta": {"content": "hi \xe4\xbd"}}]}\n', "hi \ufffd"),
        (b'data: {"choices": [{"delta": {"content": "hi"}, "logprobs": {"a": -Infinity}}]}\n', "hi"),
    ],
)
def test_text_that_is_not_unicode_is_replaced(sent: bytes, text: str) -> None:
    """Proxies cut an answer into pieces within a character."""
    assert read(sent, chunk(" there")) == [Piece(text), Piece(" there")]


def test_what_comes_without_text_is_no_piece() -> None:
    """An answer that thinks first, a list without a choice, a delta that is null, and what comes after the end."""
    thought = b'data: {"choices": [{"delta": {"role": "assistant", "reasoning_content": "hm"}}]}\n'
    nothing = b'data: {"choices": []}\ndata: {"choices": [{"delta": null}]}\ndata: {}\n'
    assert read(thought + nothing + chunk("a") + DONE + chunk("b")) == [Piece("a")]


@pytest.mark.parametrize(
    ("told", "counted"),
    [
        (usage(50, 7, 20), Counted(50, 20, 7)),
        ({"prompt_tokens": 50, "completion_tokens": 7}, Counted(50, 0, 7)),
        (usage(50, 6), None),  # fewer than the pieces that came
        (usage(50, 101), None),  # more than were asked for
        (usage(5_000_000, 7), None),
        (usage(0, 7), None),
        (usage(50, 7, 60), None),  # more from the cache than there are
        (usage(50, 7, -1), None),
        (usage(50, -7), None),
        ({"prompt_tokens": "many", "completion_tokens": 7}, None),
        ({"prompt_tokens": True, "completion_tokens": 7}, None),
        ({"prompt_tokens": 1e308, "completion_tokens": 7}, None),
        ({"prompt_tokens": 50, "completion_tokens": 7, "prompt_tokens_details": [1]}, None),
        ([], None),
        (None, None),
    ],
)
def test_usage_is_believed_where_it_can_be_true(told: Any, counted: Counted | None) -> None:
    assert believed(told, pieces=7, most_prompt=1_000, most_output=100) == counted
