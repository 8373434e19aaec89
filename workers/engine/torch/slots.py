"""Choose how many tokens a slot of the torch engine can hold, and over how many of them a decode step computes
attention: the smallest of a few sizes that fits, so that few shapes have to be recorded. Pure."""

from typing import Final

# SDPA's masked kernels need a key length that is a multiple of this, or they pad the mask again.
_MULTIPLE: Final = 8
_SHORTEST_SPAN: Final = 256

PRECISIONS: Final = ("fp32", "fp16", "bf16", "int8-mlp", "fp8-mlp")
MAX_PREFILL_ROWS: Final = 8


def capacity_for(max_length: int) -> int:
    """Return the capacity of a slot in tokens: at least `max_length` plus one, rounded up.

    The last position is for the token of a padding row; no sequence attends to it.
    """
    return -(-(max_length + 1) // _MULTIPLE) * _MULTIPLE


def spans_for(capacity: int) -> tuple[int, ...]:
    """Return the numbers of positions that a decode step may read: 256, 512, 1,024, …, and whole slots.

    Attention reads up to the longest row of a step, rounded up to one of these, and masks what is after each row's end:
    at most twice what is needed, with few enough shapes to record each as a graph.
    """
    spans = []
    span = _SHORTEST_SPAN
    while span < capacity:
        spans.append(span)
        span *= 2
    return (*spans, capacity)


def span_of(length: int, spans: tuple[int, ...]) -> int:
    """Return the smallest span for `length` positions."""
    return next(span for span in spans if span >= length)
