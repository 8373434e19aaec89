"""Decide which tenant's new requests are refused while the workers have more requests than they can serve. Pure.

A tenant is a shop; all shops share the workers. A request occupies a slot from when it is sent to the workers until its
answer ends. While more than an eighth of the slots is free, or if only one tenant asks, no request is refused. With
fewer free slots the tenant with the most requests is refused further ones, if it has clearly more than an even share:
the longest queue is cut (Suter, Lakshman, Stiliadis and Choudhury, INFOCOM 1998). So one large tenant cannot take the
slots of many small ones.

While a large tenant is refused, its requests end and its count falls, until a small tenant with two requests has the
most. To spare that small tenant, only tenants that have recently sent many questions, answered or not, are limited
while the largest count is below half of the slots.
"""

from collections import Counter, OrderedDict
from typing import Final, Literal

# A tenant counts as asking for this long after its last question. A question counts for one to two times as long.
_ASKS_MS: Final = 60_000.0
# Relative to an even share: two tenants of which one has twice as many as the other do not harm each other.
_MUCH: Final = 1.5
# One slot in this many is reserved for tenants that have few.
_SPARE: Final = 8


class TenantShares:
    """Call `record_question` for each request; if the workers get it, also `record_accepted`, and `release` at its end.
    Each call takes the same time for any number of tenants."""

    def __init__(self) -> None:
        self._tenants: dict[str, str] = {}
        self._held: Counter[str] = Counter()
        self._holders: Counter[int] = Counter()  # number of tenants by how many requests they have
        self._most = 0
        self._num_silent = 0  # tenants with requests that have not asked recently
        self._asked_unix_ms: OrderedDict[str, float] = OrderedDict()
        self._turned_unix_ms = 0.0
        self._questions: Counter[str] = Counter()
        self._earlier: Counter[str] = Counter()
        self._num_questions = 0

    def __len__(self) -> int:
        """Return the number of requests with the workers."""
        return len(self._tenants)

    def record_question(self, tenant: str, now_unix_ms: float) -> None:
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

    def record_accepted(self, request_id: str, tenant: str) -> None:
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
            self._most = held  # the tenant with the most has one less now, and no other has more
        if held:
            self._held[tenant] = held
        else:
            del self._held[tenant]
        if not (before and held):
            self._num_silent += more * (tenant not in self._asked_unix_ms)

    def has_too_much(self, tenant: str, slots: int) -> bool:
        """Return whether one more request of this tenant would be at the expense of others. `slots` is the number of
        requests that the workers can decode together; 0 if unknown, in which case no tenant has too much."""
        if not slots or len(self) < slots - slots // _SPARE:
            return False
        held = self._held[tenant]
        if not self._is_much(held + 1) or held < self._most:
            return False
        return self._asks_much(tenant) or held * 2 >= slots

    def is_owed(self, tenant: str) -> bool:
        """Return whether this tenant would have at most an even share while another one has much more."""
        if not self._held or (self._held[tenant] + 1) * self._num_tenants > len(self) + 1:
            return False
        return self._is_much(self._most)

    def _is_much(self, held: int) -> bool:
        """Return whether a number of requests is well above an even share. Never true for a tenant that asks alone."""
        return held * self._num_tenants > _MUCH * (len(self) + 1)

    def _asks_much(self, tenant: str) -> bool:
        questions = self._questions[tenant] + self._earlier[tenant]
        return questions * self._num_tenants > _MUCH * self._num_questions

    @property
    def _num_tenants(self) -> int:
        return len(self._asked_unix_ms) + self._num_silent
