"""The answer of whoever looks for an engine where there can be none on this machine."""

from msgspec import Struct


class Unusable(Struct, frozen=True, tag="unusable"):
    """One line: what is missing or wrong, and what to do."""

    reason: str
