"""Decide which tenant uses too much of the Redis that stores conversations. Pure.

A tenant may use a multiple of the free memory (Choudhury and Hahne, "Dynamic queue length thresholds", 1998): a single
tenant may use nearly all, a flooding one leaves room, and small tenants always fit. A tenant's use is estimated by its
share of this process's recent writes.
"""

from collections import Counter
from typing import Final

_TIMES_FREE: Final = 8.0
# With fewer bytes written, a tenant's share of them means little.
_FEW_BYTES: Final = 1 << 20


class MemoryShares:
    """Recent writes by tenant. `used` is the used share of Redis's memory, 0 if unknown."""

    def __init__(self, kept_for_s: float) -> None:
        self._kept_for_s = kept_for_s
        self._turned_s = 0.0
        self._bytes: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()
        self.used = 0.0

    def allows(self, tenant: str, num_bytes: int, now_s: float) -> bool:
        """Count a tenant's write, and return whether it is allowed."""
        past_s = now_s - self._turned_s
        if past_s > self._kept_for_s:
            self._turned_s = now_s
            self._earlier = self._bytes if past_s <= 2 * self._kept_for_s else Counter()
            self._bytes = Counter()
        self._bytes[tenant] += num_bytes
        total = self._bytes.total() + self._earlier.total() + _FEW_BYTES
        part = (self._bytes[tenant] + self._earlier[tenant]) / total
        return part * self.used <= _TIMES_FREE * (1 - self.used)
