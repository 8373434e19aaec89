"""An incident: what a diagnosis found, when, people's notes about it, and the similarity of two incidents. Pure."""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Final

from msgspec import Struct

_ADDRESS: Final = re.compile(r"\b[a-z]+://\S+?(?=[\s,:;]*(?:\s|$))|\b[\w.-]+:\d+\b")
_NUMBER: Final = re.compile(r"\d[\d,.]*%?")
# A cause is more significant than a line of evidence, and the first cause explains the others.
_BOTTLENECK: Final = 3.0
_CAUSE: Final = 2.0
_LINE: Final = 1.0
_ID_DIGITS: Final = 4


class Note(Struct, frozen=True):
    """A person's note on an incident: the cause, and what helped."""

    unix_ms: int
    author: str
    text: str


class Incident(Struct, frozen=True):
    """An incident. `found` is the diagnosis: the evidence for each cause, of which the first explains the others."""

    id: str
    unix_ms: int
    found: dict[str, list[str]]
    notes: tuple[Note, ...] = ()

    @property
    def bottleneck(self) -> str:
        """Return the cause that explains the others."""
        return next(iter(self.found))


def new_incident(found: Mapping[str, Sequence[str]], now_unix_ms: float) -> Incident:
    """Return an incident with an id that sorts by time. Raises `ValueError` if nothing was found."""
    if not found:
        raise ValueError("nothing is at its limit, so there is no incident to keep")
    when = datetime.fromtimestamp(now_unix_ms / 1_000, UTC).strftime("%Y%m%d-%H%M%S")
    lines = {cause: list(evidence) for cause, evidence in found.items()}
    digest = hashlib.sha256(f"{now_unix_ms}{lines}".encode()).hexdigest()[:_ID_DIGITS]
    return Incident(id=f"{when}-{digest}", unix_ms=round(now_unix_ms), found=lines)


def symptoms(found: Mapping[str, Sequence[str]]) -> dict[str, float]:
    """Return an incident's symptoms with their weights: its causes, and its evidence without numbers and addresses."""
    weights: dict[str, float] = {}
    for place, (cause, evidence) in enumerate(found.items()):
        weights[cause] = _CAUSE if place else _BOTTLENECK
        for line in evidence:
            weights[f"{cause}: {_masked(line)}"] = _LINE
    return weights


def likeness(one: Mapping[str, Sequence[str]], other: Mapping[str, Sequence[str]]) -> float:
    """Return the similarity of two diagnoses, 0 to 1: the weighted Jaccard index of their symptoms (Ioffe, "Improved
    Consistent Sampling, Weighted Minhash and L1 Sketching", ICDM 2010)."""
    first, second = symptoms(one), symptoms(other)
    names = first.keys() | second.keys()
    pairs = [(first.get(name, 0.0), second.get(name, 0.0)) for name in names]
    most = sum(max(pair) for pair in pairs)
    return sum(min(pair) for pair in pairs) / most if most else 0.0


def nearest(
    found: Mapping[str, Sequence[str]], kept: Iterable[Incident], *, at_least: float, limit: int
) -> list[tuple[float, Incident]]:
    """Return the most similar incidents, ordered by similarity and then by time, the newest first."""
    alike = [(likeness(found, each.found), each) for each in kept]
    near = [pair for pair in alike if pair[0] >= at_least]
    return sorted(near, key=lambda pair: (pair[0], pair[1].unix_ms), reverse=True)[:limit]


def _masked(line: str) -> str:
    return _NUMBER.sub("#", _ADDRESS.sub("@", line))
