"""Customers who ask a few questions with time to think in between, and leave. Pure; randomness is a parameter.

A conversation has 1 to 12 questions (geometric, 3.5 on average without that limit). The time from one question to the
next is 20 s on average (log-normal, at most 120 s), including the answer. Customers do not wait for an answer before
they ask again: this is an open loop.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from ops.traces.mixes import log_normal

_MEAN_QUESTIONS: Final = 3.5
_MOST_QUESTIONS: Final = 12
_THINK_MS: Final = 20_000
_THINK_VARIATION: Final = 1.0
_MOST_THINK_MS: Final = 120_000
_GO_ON: Final = 1 - 1 / _MEAN_QUESTIONS
MEAN_QUESTIONS: Final = (1 - _GO_ON**_MOST_QUESTIONS) / (1 - _GO_ON)
LONGEST_MS: Final = (_MOST_QUESTIONS - 1) * _MOST_THINK_MS


def conversations(random: Random, per_ms: float, span_ms: float) -> Iterator[tuple[float, str]]:
    """Yield (time, conversation) of each question in ascending order, at `per_ms` on average over the whole span.
    Conversations that began before the span continue in it."""
    asked: list[tuple[float, str]] = []
    start, number = -float(LONGEST_MS), 0
    while (start := start + random.expovariate(per_ms / MEAN_QUESTIONS)) < span_ms:
        number += 1
        asked += [(at, f"c{number}") for at in _questions(random, start) if 0 <= at < span_ms]
    yield from sorted(asked)


def _questions(random: Random, start_ms: float) -> Iterator[float]:
    at = start_ms
    for question in range(_MOST_QUESTIONS):
        if question and random.random() >= _GO_ON:
            return
        yield at
        at += log_normal(random, _THINK_MS, _THINK_VARIATION, _MOST_THINK_MS)
