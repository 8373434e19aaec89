"""Slots that are kept for long requests, whatever the others ask. Pure.

A crowd of short requests fills every slot, and a long one, whose latest start is early, finds none. Kept slots are its
own; the others plan and start as if there were fewer slots, by so many as no long one holds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from heapq import heappop
from typing import Final, Self

from shared.wire.messages import Bucket
from workers.schedule.sequence import Sequence

LONG: Final[Bucket] = "long"


@dataclass(frozen=True, slots=True)
class Reserve:
    """`kept` slots are for the bucket `long` alone, which may have others too."""

    kept: int = 0

    @classmethod
    def of(cls, share: float, num_slots: int) -> Self:
        """Return the reserve that a share of the slots is: one slot at least, where there is to be any, and not all."""
        return cls(min(max(1, math.floor(share * num_slots)), num_slots - 1) if share > 0 else 0)

    def unheld(self, running: Iterable[Sequence]) -> int:
        """Return how many of the kept slots no long request holds."""
        return max(0, self.kept - sum([row.bucket == LONG for row in running])) if self.kept else 0

    def set_aside(self, free_unix_ms: list[float], running: Iterable[Sequence]) -> list[float]:
        """Take from the heap of the times when slots are free the soonest of those that are for long ones alone, and
        return them, ascending. One is left."""
        num_aside = min(self.unheld(running), len(free_unix_ms) - 1)
        return [heappop(free_unix_ms) for _ in range(num_aside)]
