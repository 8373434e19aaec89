"""Measure how closely an FAQ entry is related to a question, and determine how high this measure must be for the entry
to be quoted.

The measure means something else in each shop: an FAQ of 90 entries has a word in common with nearly every question. So
each FAQ is first searched with packaged questions that concern no shop. What most of them reach is too little for a
quote in this FAQ.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from shared.faq.entries import FaqHit
from shared.wire.messages import Language

_OFF_TOPIC: Final = Path(__file__).with_name("off_topic.json")
# On the dev questions the sum separates what an entry is related to from what is off the topic better than either.
_SCORE_WEIGHT: Final = 8.0
# So many of the off-topic questions find no related entry. Of the dev questions, each judged by trees that were fitted
# without it, 454 of 458 right entries are still quoted and 14 of 26 off-topic questions find none; with 0.5 458 and 8,
# with 0.8 440 and 18.
_UNRELATED: Final = 0.65
# What an entry that answers has with half of the score: an FAQ of general knowledge still quotes.
_MOST: Final = 4.0


def relation_of(hit: FaqHit) -> float:
    """Return how closely a hit's entry is related to the question: the logit of its sureness and a part of its
    score."""
    return hit.logit + _SCORE_WEIGHT * hit.score


def least_relation(best: Sequence[FaqHit | None]) -> float:
    """Return the relation from which an entry is quoted.

    Args:
        best: The best hit of each off-topic question; None where it found no entry.
    """
    reached = sorted(-math.inf if hit is None else relation_of(hit) for hit in best)
    return min(reached[int(_UNRELATED * len(reached))], _MOST)


@cache
def off_topic() -> Mapping[Language, Sequence[str]]:
    """Return the packaged questions that no shop's FAQ answers, by language."""
    return msgspec.json.decode(_OFF_TOPIC.read_bytes(), type=dict[Language, tuple[str, ...]])
