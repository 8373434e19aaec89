"""Choose the partition of a conversation's next question, and so its worker. Pure.

The hash of a key alone distributes conversations blindly: one worker is overloaded while another is idle. A
conversation without KV goes where its first text is predicted soonest. A conversation with KV stays with it until
another worker would be faster even without it (the KV can be loaded from Redis there). While an earlier question may
still be answered, the conversation stays on its partition, so that its answers keep their order.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median_low
from typing import Final, Literal

from msgspec import Struct

# The error of a prediction: waits that differ by less count as equal, and the hash of the key decides.
_ALIKE_MS: Final = 50.0
_ALIKE_SHARE: Final = 0.25

Why = Literal["hash", "slack", "kv", "moved", "pinned"]
"""Why a question's partition was chosen: by the `hash` of its key, for the worker with the most `slack`, where its `kv`
is, `moved` away from its KV, or `pinned` to the partition of an earlier question that may still be answered."""


@dataclass(frozen=True, slots=True)
class Wait:
    """The predicted time to the first text of a partition's next question, with the conversation's KV and without."""

    warm_ms: float
    cold_ms: float


class Claimed(Struct, frozen=True):
    """The partition of a conversation's question.

    Attributes:
        partition: the same number in every topic; None if the hash of the key decides
        why: why it was chosen; None if the hash of the key decides
        concurrent: the conversation's other questions that have not ended
        after: the conversation's last answer, if it is a turn that is stored or being written
        is_new: Redis had no partition of the conversation before
    """

    partition: int | None = None
    why: Why | None = None
    concurrent: tuple[str, ...] = ()
    after: str | None = None
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class Offer:
    """The partition offered for a question before its conversation's last partition is known.

    Attributes:
        partition: the partition if the conversation has no last one
        why: why it was chosen
        staying: last partitions on which the conversation stays; None for all
    """

    partition: int
    why: Why
    staying: frozenset[int] | None

    def to(self, last: int | None, *, pinned: bool = False) -> Claimed:
        """Return the partition of the question. Redis applies the same rule (`shared/conversation/places.py`).

        Args:
            last: the partition of the conversation's last question; None without one
            pinned: the last question may still be answered
        """
        if last is None:
            return Claimed(self.partition, self.why)
        if pinned or self.staying is None or last in self.staying:
            return Claimed(last, "pinned" if pinned else "kv")
        return Claimed(self.partition, "moved")


def offer(home: int, waits: Mapping[int, Wait]) -> Offer:
    """Return the offer for a question.

    Args:
        home: the partition that its key hashes to
        waits: the waits of the partitions whose workers may be sent a request; empty during a rebalance
    """
    if not waits:
        return Offer(home, "hash", None)
    least_ms, _, best = min((wait.cold_ms, number < home, number) for number, wait in waits.items())
    alike_ms = least_ms + max(_ALIKE_MS, _ALIKE_SHARE * least_ms)
    staying = frozenset(number for number, wait in waits.items() if wait.warm_ms <= alike_ms)
    if home in waits and waits[home].cold_ms <= alike_ms:
        return Offer(home, "hash", staying)
    return Offer(best, "slack", staying)


def skew(waits: Mapping[int, Wait]) -> float:
    """Return the busiest worker's predicted wait divided by the (lower) median; 1 if no waits are known. Waits below
    the error of a prediction count as that error, and a worker counts once for all its partitions."""
    by_worker = {id(wait): max(wait.warm_ms, _ALIKE_MS) for wait in waits.values()}.values()
    return max(by_worker) / median_low(by_worker) if by_worker else 1.0
