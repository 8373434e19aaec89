"""Decide which tenant has too much of the memory that conversations are kept in: pure.

A tenant may hold a multiple of what is still free (Choudhury and Hahne, "Dynamic queue length thresholds", 1998): one
that asks alone may have nearly all, one that floods leaves room, and small tenants always fit. What a tenant holds is
estimated by its part of this process's recent writes.
"""

from collections import Counter
from typing import Final

_TIMES_FREE: Final = 8.0
# Below that a part of it says little.
_FEW_BYTES: Final = 1 << 20


class MemoryShares:
    """`used` is the part of its memory that Redis has taken, 0 where nobody knows."""

    def __init__(self, kept_for_s: float) -> None:
        self._kept_for_s = kept_for_s
        self._turned_s = 0.0
        self._bytes: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()
        self.used = 0.0

    def allows(self, tenant: str, num_bytes: int, now_s: float) -> bool:
        """Count what a tenant wants kept; return whether it may be."""
        past_s = now_s - self._turned_s
        if past_s > self._kept_for_s:
            self._turned_s = now_s
            self._earlier = self._bytes if past_s <= 2 * self._kept_for_s else Counter()
            self._bytes = Counter()
        self._bytes[tenant] += num_bytes
        total = self._bytes.total() + self._earlier.total() + _FEW_BYTES
        part = (self._bytes[tenant] + self._earlier[tenant]) / total
        return part * self.used <= _TIMES_FREE * (1 - self.used)
