"""What a search for an engine returns if this machine cannot run it: one line with the cause and the remedy."""

from msgspec import Struct


class Unusable(Struct, frozen=True, tag="unusable"):
    """One line: what is missing or wrong, and what to do."""

    reason: str
