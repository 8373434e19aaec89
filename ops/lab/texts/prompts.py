"""Different questions of a given length. Pure.

They consist of plain words, nearly all of which are one token including the preceding space, so a text of n words has
about n tokens in the vocabularies of English models.
"""

import random
from collections.abc import Mapping
from typing import Final

from shared.errors import SettingsError

# fmt: off
WORDS: Final = (
    "order", "parcel", "return", "refund", "invoice", "account", "delivery", "payment", "address", "size", "color",
    "jacket", "lamp", "table", "chair", "blanket", "shoes", "card", "gift", "weight", "price", "store", "shelf",
    "bottle", "garden", "winter", "summer", "morning", "evening", "river", "forest", "harbor", "window", "letter",
    "number", "market", "week", "month", "paper", "wood", "metal", "glass", "cotton", "wool", "leather", "red",
    "blue", "green", "white", "black", "small", "large", "heavy", "light", "new", "old", "warm", "cold", "fast",
    "slow", "first", "second", "third", "last", "next", "before", "after", "between", "under", "over", "around",
)
# fmt: on
# Within the limits of the topics: short up to 64 tokens, medium up to 256, long above.
LENGTHS: Final[Mapping[str, int]] = {"short": 24, "medium": 128, "long": 400}
_WHOLE: Final = 1.0
_ROUNDING: Final = 1e-6


def parse_mix(text: str) -> dict[str, float]:
    """Parse `short=0.8,long=0.2` as shares that add up to 1. Raises `SettingsError`."""
    mix: dict[str, float] = {}
    for part in text.split(","):
        name, _, share = part.strip().partition("=")
        try:
            value = float(share)
        except ValueError:
            value = -1.0
        if name not in LENGTHS or name in mix or not 0.0 <= value <= _WHOLE:
            raise SettingsError(f"--mix {text}: write shares of {', '.join(LENGTHS)}, each once: short=0.8,long=0.2")
        mix[name] = value
    if abs(sum(mix.values()) - _WHOLE) > _ROUNDING:
        raise SettingsError(f"--mix {text}: the shares add up to {sum(mix.values()):g}, not to 1")
    return mix


def mixed_lengths(mix: Mapping[str, float], count: int, seed: int) -> list[int]:
    """Return the number of tokens of each of `count` questions, drawn according to the mix's shares."""
    draw = random.Random(seed)  # noqa: S311 - a load, not a secret
    names = draw.choices(list(mix), weights=list(mix.values()), k=count)
    return [LENGTHS[name] for name in names]


def question(num_tokens: int, seed: int) -> str:
    """Return a question of about `num_tokens` tokens, different for each seed."""
    draw = random.Random(seed)  # noqa: S311 - a load, not a secret
    return " ".join(draw.choices(WORDS, k=num_tokens))
