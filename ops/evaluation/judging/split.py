"""Split the FAQ's entries into those to fit a model and its thresholds on and those to judge them by. Pure."""

import hashlib
from typing import Literal

Split = Literal["dev", "held_out"]


def split_of(entry_id: str) -> Split:
    """Return the half that an entry is in, by its id alone, in about equal halves: an entry's every language and
    wording is on one side."""
    return "held_out" if hashlib.blake2b(entry_id.encode(), digest_size=1).digest()[0] % 2 else "dev"
