"""Choose the partition of a conversation's next question, and so its worker. Pure.

A key's hash alone shares conversations out blindly: one worker burns while its neighbour idles. A conversation of which
nothing is kept goes where its first text is predicted soonest. One with KV stays with it, until it would be sooner
elsewhere even without (it can be loaded from Redis there). While an earlier question of it may still be answered it
stays where that is: its answers keep their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Final, Literal

from msgspec import Struct

# What a prediction may be wrong by: nearer ones are alike, and the key's hash decides.
_ALIKE_MS: Final = 50.0
_ALIKE_SHARE: Final = 0.25

Why = Literal["hash", "slack", "kv", "moved", "pinned"]
"""Why a question goes where it goes: by its key's `hash`, to the worker with the most `slack`, where its `kv` is,
`moved` from there, or `pinned` behind an earlier one that may still be answered."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The predicted time to the first text of a question of one partition: with the conversation's KV, and without."""

    warm_ms: float
    cold_ms: float


class Claimed(Struct, frozen=True):
    """A conversation's partition, the same number in every topic, and why; both None if the key's hash decides.
    `concurrent` are the conversation's other questions that have no end yet. `is_new`: by Redis it had none before."""

    partition: int | None = None
    why: Why | None = None
    concurrent: tuple[str, ...] = ()
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """Where a conversation's question goes, before it is known where the last one went: to `partition` if none did. One
    of `staying` keeps it (None: each does), and so does any to which it is pinned."""

    partition: int
    why: Why
    staying: frozenset[int] | None

    def to(self, last: int | None, *, pinned: bool = False) -> Claimed:
        """Return where it goes; `last` is the partition of the conversation's last question, which may still be
        answered there if it is `pinned`. Redis does the same (`shared/conversation/places.py`)."""
        if last is None:
            return Claimed(self.partition, self.why)
        if pinned or self.staying is None or last in self.staying:
            return Claimed(last, "pinned" if pinned else "kv")
        return Claimed(self.partition, "moved")


def offer(home: int, waits: Mapping[int, Wait]) -> Offer:
    """Return the offer for a question. `home` is the partition of its key's hash. `waits` are those of the partitions
    that a worker reads which may be asked; empty in a rebalance."""
    if not waits:
        return Offer(home, "hash", None)
    best = min(waits, key=lambda number: (waits[number].cold_ms, number < home, number))
    staying = frozenset(number for number in waits if _nearly(waits, number, best, warm=True))
    if _nearly(waits, home, best, warm=False):
        return Offer(home, "hash", staying)
    return Offer(best, "slack", staying)


def skew(waits: Mapping[int, Wait]) -> float:
    """Return the busiest worker's predicted wait over the median one, the lower of two; 1 where all are alike, or none
    is known. A worker's partitions have one wait; less than a prediction may be wrong by counts as that."""
    by_worker = {id(wait): max(wait.warm_ms, _ALIKE_MS) for wait in waits.values()}.values()
    return max(by_worker) / median_low(by_worker) if by_worker else 1.0


def _nearly(waits: Mapping[int, Wait], number: int, best: int, *, warm: bool) -> bool:
    """Return whether a partition is as soon as the best one, which has no KV of the conversation."""
    here, least_ms = waits.get(number), waits[best].cold_ms
    if here is None:
        return False
    wait_ms = here.warm_ms if warm else here.cold_ms
    return wait_ms <= least_ms + max(_ALIKE_MS, _ALIKE_SHARE * least_ms)
