"""Track what each tenant holds of the workers, and which tenant has too much. Pure.

No tenant is held back while slots are free, nor where one asks alone. When the slots are full, the tenant that holds
the most gets no more, if that is well over an even share: the longest queue is cut (Suter, Lakshman, Stiliadis and
Choudhury, INFOCOM 1998). So many small tenants are never refused for a big one. A tenant that is held back soon holds
little: next to a flood that gets no more, one that asks twice in a row may hold the most. So below half of the slots
only tenants that ask much, answered or not, are held back.
"""

from collections import Counter, OrderedDict
from typing import Final, Literal

# A tenant counts as asking for this long after its last question, and each question for one to two times as long.
_ASKS_MS: Final = 60_000.0
# Of an even share: two tenants of which one has twice as much as the other do each other no harm.
_MUCH: Final = 1.5
# One in so many slots stays free for those who have little.
_SPARE: Final = 8


class TenantShares:
    """Each request: `asks`; if the workers get it then also `took`, and `release` at its end. Each takes the same time
    however many tenants there are."""

    def __init__(self) -> None:
        self._tenants: dict[str, str] = {}
        self._held: Counter[str] = Counter()
        self._holders: Counter[int] = Counter()  # by how much they hold: so many tenants
        self._most = 0
        self._num_silent = 0  # hold something, and have not asked for a while
        self._asked_unix_ms: OrderedDict[str, float] = OrderedDict()
        self._turned_unix_ms = 0.0
        self._questions: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()
        self._num_questions = 0

    def __len__(self) -> int:
        """Return how many requests the workers have."""
        return len(self._tenants)

    def asks(self, tenant: str, now_unix_ms: float) -> None:
        if tenant not in self._asked_unix_ms:
            self._num_silent -= tenant in self._held
        self._asked_unix_ms[tenant] = now_unix_ms
        self._asked_unix_ms.move_to_end(tenant)
        while abs(now_unix_ms - next(iter(self._asked_unix_ms.values()))) > _ASKS_MS:
            silent, _ = self._asked_unix_ms.popitem(last=False)
            self._num_silent += silent in self._held
        past_ms = abs(now_unix_ms - self._turned_unix_ms)
        if past_ms > _ASKS_MS:
            self._turned_unix_ms = now_unix_ms
            self._earlier = self._questions if past_ms <= 2 * _ASKS_MS else Counter()
            self._questions = Counter()
            self._num_questions = self._earlier.total()
        self._questions[tenant] += 1
        self._num_questions += 1

    def took(self, request_id: str, tenant: str) -> None:
        self.release(request_id)
        self._tenants[request_id] = tenant
        self._holds(tenant, +1)

    def release(self, request_id: str) -> None:
        tenant = self._tenants.pop(request_id, None)
        if tenant is not None:
            self._holds(tenant, -1)

    def _holds(self, tenant: str, more: Literal[1, -1]) -> None:
        before = self._held[tenant]
        held = before + more
        self._holders[before] -= 1
        self._holders[held] += 1
        if held > self._most or not self._holders[self._most]:
            self._most = held  # the one that held the most holds one less now, and no other more
        if held:
            self._held[tenant] = held
        else:
            del self._held[tenant]
        if not (before and held):
            self._num_silent += more * (tenant not in self._asked_unix_ms)

    def has_too_much(self, tenant: str, slots: int) -> bool:
        """Return whether one more of this tenant's requests would be at the cost of others. `slots` is what the workers
        can decode together; 0 where that is not known, and no tenant has too much."""
        if not slots or len(self) < slots - slots // _SPARE:
            return False
        held = self._held[tenant]
        if not self._is_much(held + 1) or held < self._most:
            return False
        return self._asks_much(tenant) or held * 2 >= slots

    def is_owed(self, tenant: str) -> bool:
        """Return whether this tenant would have no more than an even share, and it is another that has much more."""
        if not self._held or (self._held[tenant] + 1) * self._num_tenants > len(self) + 1:
            return False
        return self._is_much(self._most)

    def _is_much(self, held: int) -> bool:
        """Never where one tenant asks alone: all that there is is its even share."""
        return held * self._num_tenants > _MUCH * (len(self) + 1)

    def _asks_much(self, tenant: str) -> bool:
        questions = self._questions[tenant] + self._earlier[tenant]
        return questions * self._num_tenants > _MUCH * self._num_questions

    @property
    def _num_tenants(self) -> int:
        return len(self._asked_unix_ms) + self._num_silent
