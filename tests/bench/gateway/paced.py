"""Deltas that say when they were due, and how late each came. Pure."""

from typing import Final

DELTAS: Final = 32
INTERVAL_MS: Final = 20.0
DELTA_CHARS: Final = 60
_DIGITS: Final = 16
_PADDING: Final = "x" * (DELTA_CHARS - _DIGITS)
_US: Final = 1_000_000


def delta_text(due_s: float) -> str:
    """Sixty characters that begin with the due time in microseconds."""
    return f"{int(due_s * _US):016d}{_PADDING}"


def lateness_ms(text: str, now_s: float) -> list[float]:
    """Of each delta in a text: a gateway may have joined several."""
    return [
        (now_s - int(text[at : at + _DIGITS]) / _US) * 1_000
        for at in range(0, len(text) - DELTA_CHARS + 1, DELTA_CHARS)
    ]
