"""An upstream's bytes become pieces of text, and its usage is accepted if plausible."""

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


ERRORS = (
    b'{"detail": "the customer said"}',
    b'{"detail": [{"loc": ["body"], "msg": "the customer said"}]}',
    b'{\n  "error": {\n    "message": "the customer said"\n  }\n}\n',
    b'[{\n  "error": {"code": 429, "message": "the customer said"}\n}\n]',
    b'{"error": "the customer said"}',
    b'{"type": "error", "error": {"type": "overloaded_error"}}',
    b'{"type": "error"}',
    b'{"object": "error", "message": "the customer said", "choices": []}',
    b'{"message": "the customer said", "code": 404}',
    b'{"code": 500, "msg": "the customer said"}',
)


@pytest.mark.parametrize(
    ("sent", "cause"),
    [
        (b"data: {\n", "broken_stream"),
        (b'data: {"choices": 7}\n', "broken_stream"),
        (b"data: " + b"[" * 60_000 + b"\n", "broken_stream"),
        (b'data: {"error": {"message": "the customer said ..."}}\n', "failed"),
        *((form, "failed") for form in ERRORS),
        *((chunk("Hi") + b"data: " + b" ".join(form.split()) + b"\n\n" + DONE, "failed") for form in ERRORS),
        (chunk("Hi") + b"event: Error\r\ndata: the customer said\r\n\r\n", "failed"),
        (b"<!DOCTYPE html>\n<title>502 the customer said</title>", "broken_stream"),
        (chunk("Hi") + b"<html>", "broken_stream"),
        (b"data: " + b"x" * 70_000, "line_too_long"),
        (chunk() * 100_000, "too_much"),
    ],
)
def test_an_invalid_chunk_is_reported_by_name_without_its_text(sent: bytes, cause: str) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        read(sent)
    assert caught.value.cause == cause
    assert "customer" not in str(caught.value)


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b'data: {"choices": [{"delta": {"content": "hi \\ud83d"}}]}\n', "hi "),
        (b'data: {"choices": [{"delta": {"content": "hi \\ud83d\\ude00"}}]}\n', "hi \U0001f600"),
        (b'data: {"choices": [{"delta": {"content": "hi \xe4\xbd"}}]}\n', "hi \ufffd"),
        (b'data: {"choices": [{"delta": {"content": "hi"}, "logprobs": {"a": -Infinity}}]}\n', "hi"),
    ],
)
def test_text_that_is_not_unicode_is_replaced(sent: bytes, text: str) -> None:
    """Proxies cut an answer into pieces within a character."""
    assert read(sent, chunk(" there")) == [Piece(text), Piece(" there")]


@pytest.mark.parametrize(
    ("reason", "finish"),
    [
        *(
            (reason, "stop")
            for reason in ("stop", "stopped", "end_of_text", "eos", "eos_token_id", "eos_token", "stop_str")
        ),
        *((reason, "stop") for reason in ("end_turn", "end_of_turn", "eot", "complete", "completed", "stop_sequence")),
        *((reason, "stop") for reason in ("end", "ended", "success", "matched_stop", "stopping_criteria")),
        *((reason, "length") for reason in ("truncated", "token_limit_exceeded", "max_tokens_exceeded")),
        *((reason, "length") for reason in ("length", "max_tokens", "repetition", "max_length", "max_new_tokens")),
    ],
)
def test_an_end_is_known_in_each_way_of_writing(reason: str, finish: str) -> None:
    camel = "".join(word.capitalize() for word in reason.split("_"))
    ways = (
        reason,
        reason.upper(),
        f"FINISH_REASON_{reason.upper()}",
        reason.replace("_", "-"),
        camel,
        f"FinishReason{camel}",
        f"FinishReason.{reason.upper()}",
    )
    assert {piece.finish for way in ways for piece in read(chunk(finish=way)) if piece.finish} == {finish}
    assert all(read(chunk(finish=way)) for way in ways)


@pytest.mark.parametrize(
    "way",
    [
        "finish_reason_unspecified",
        "FINISH_REASON_UNSPECIFIED",
        "FinishReasonUnspecified",
        "RUNNING",
        "FinishReason.NONE",
    ],
)
def test_an_unspecified_reason_is_no_end(way: str) -> None:
    assert read(chunk("a", finish=way)) == [Piece("a")]


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("FINISH_REASON_SAFETY", "withheld"),
        ("FINISH_REASON_PROHIBITED_CONTENT", "withheld"),
        ("toolCalls", "calls_tool"),
        ("unstoppable", "unknown_end"),
        ("length_unknown", "unknown_end"),
        ("FINISH_REASON_OTHER", "unknown_end"),
    ],
)
def test_an_end_that_is_not_the_answers_is_a_failure(reason: str, cause: str) -> None:
    with pytest.raises(UpstreamFailure) as caught:
        read(chunk(finish=reason))
    assert caught.value.cause == cause


@pytest.mark.parametrize(
    "sent",
    [
        b"data: null\n\n" + chunk("a", finish="stop"),
        b'data: ""\n\n' + chunk("a", finish="stop"),
        b'data: {"choices": [{"index": "0", "delta": {"content": "a"}, "finish_reason": "stop"}]}\n',
        b'data: {"choices": [{"delta": {"content": ["a"]}, "finish_reason": "stop"}]}\n',
        b'data: {"choices": [{"delta": {"content": "a"}}], "finish_reason": "stop"}\n',
        *(chunk("a", finish=reason) for reason in ("<|im_end|>", "</s>", "True")),
    ],
)
def test_a_stream_is_read_as_other_servers_write_it(sent: bytes) -> None:
    assert read(sent) == [Piece("a", "stop")]


def test_what_comes_without_text_is_no_piece() -> None:
    """The cases: an answer that thinks first, a list without a choice, a delta that is null, and events after
    the end."""
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


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_lines_end_and_begin_as_servers_write_them(end: bytes, mark: bytes) -> None:
    sent = (mark + chunk("Hi") + chunk(finish="stop") + DONE).replace(b"\n", end)
    assert read(*(sent[at : at + 1] for at in range(len(sent)))) == [Piece("Hi"), Piece(finish="stop")]
