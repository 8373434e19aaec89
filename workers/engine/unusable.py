"""The result of a search for an engine that this machine cannot run."""

from msgspec import Struct


class Unusable(Struct, frozen=True, tag="unusable"):
    """One line: what is missing or wrong, and what to do."""

    reason: str
