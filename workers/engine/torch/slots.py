"""Decide how long torch's slots are, and how much of them a decode step reads: pure."""

from typing import Final

# What SDPA's masked kernels want the length of keys to be a multiple of, so that no mask is padded anew.
_MULTIPLE: Final = 8
_SHORTEST_SPAN: Final = 256

PRECISIONS: Final = ("fp32", "fp16", "bf16", "int8-mlp", "fp8-mlp")
MAX_PREFILL_ROWS: Final = 8


def capacity_for(max_length: int) -> int:
    """Tokens that a slot has room for where sequences have `max_length`: one more at least, rounded up.

    In the last place goes the token of a row that only pads a decode step; no sequence attends to it.
    """
    return -(-(max_length + 1) // _MULTIPLE) * _MULTIPLE


def spans_for(capacity: int) -> tuple[int, ...]:
    """Return the numbers of places of which a decode step reads one: 256, 512, 1,024, …, and whole slots.

    Attention reads keys and values as far as the longest row of a step, rounded up to one of these, and masks what
    lies behind each row's end: at most twice what is needed, with few enough shapes to record each as a graph.
    """
    spans = []
    span = _SHORTEST_SPAN
    while span < capacity:
        spans.append(span)
        span *= 2
    return (*spans, capacity)


def span_of(length: int, spans: tuple[int, ...]) -> int:
    """Return the smallest span that `length` places fit."""
    return next(span for span in spans if span >= length)
