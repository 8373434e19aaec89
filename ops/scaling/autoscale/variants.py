"""How much of a lane's demand the cheaper pools of a lane leave to the next one. Pure.

Variants are pools of one lane and the same buckets on machines of different prices, for example a small and a large
GPU. The cheapest one is sized for all demand up to its most workers, the next one for what that cannot carry.
"""

from dataclasses import dataclass, field
from typing import Final

from shared.wire.scaling import ScalingRecord

_SILENT_MS: Final = 180_000.0  # an autoscaler writes a record each minute
_SHORT_MS: Final = 300_000.0  # a pod missing for this long will not start: no such machine is free


@dataclass(slots=True)
class Variants:
    """What the autoscalers of a lane's pools have decided, by their records. A record may be a minute old.

    Attributes:
        pool: the pool that is sized.
        named: the lane's pools, cheapest first, as this autoscaler was given them.
    """

    pool: str
    named: tuple[str, ...]
    _newest: dict[str, tuple[ScalingRecord, float]] = field(default_factory=dict)  # and when it was received
    _short_since_ms: dict[str, float] = field(default_factory=dict)
    _orders: dict[tuple[str, ...], float] = field(default_factory=dict)  # others' orders: last received

    def hear(self, record: ScalingRecord, now_ms: float) -> None:
        """Take in a record of any pool."""
        if record.pool == self.pool:
            return
        self._newest[record.pool] = record, now_ms
        if self.pool in record.variants:
            self._orders[record.variants] = now_ms
        if record.found < record.wanted:
            self._short_since_ms.setdefault(record.pool, now_ms)
        else:
            self._short_since_ms.pop(record.pool, None)

    def order(self, now_ms: float) -> tuple[str, ...]:
        """Return the order of the pools: if they are configured with different ones, the longest, and among those the
        first by name. So at most one pool is the cheapest."""
        current = [order for order, received_ms in self._orders.items() if now_ms - received_ms <= _SILENT_MS]
        return min((self.named, *current), key=lambda order: (-len(order), order))

    def cheaper(self, now_ms: float) -> tuple[str, ...]:
        """Return the pools that are filled before this one, cheapest first."""
        order = self.order(now_ms)
        return order[: order.index(self.pool)]

    def contradiction(self, now_ms: float) -> str:
        """Return how another autoscaler of the lane contradicts this one's order; empty if none does."""
        order = self.order(now_ms)
        others = sorted(each for each, received_ms in self._orders.items() if now_ms - received_ms <= _SILENT_MS)
        other = next((each for each in others if each != self.named), None)
        if other is None:
            return ""
        return f"--variants is {','.join(self.named)} here and {','.join(other)} elsewhere: {','.join(order)} is used"

    def rest(self, now_ms: float) -> float | None:
        """Return the share of the demand that is left, 0 to 1; None while a cheaper pool's autoscaler is silent."""
        rest = 1.0
        for name in self.cheaper(now_ms):
            record = self._record(name, now_ms)
            if record is None or record.asked is None:
                return None
            workers = record.found if self._is_short(name, now_ms) else record.most
            carried = workers * record.carries * record.trust
            rest *= max(0.0, 1.0 - carried / record.asked) if record.asked > 0.0 else 0.0
        return rest

    def silent(self, now_ms: float) -> str:
        """Return the first cheaper pool whose autoscaler does not report what it is asked; empty if each does."""
        return next((name for name in self.cheaper(now_ms) if self._record(name, now_ms) is None), "")

    def _record(self, name: str, now_ms: float) -> ScalingRecord | None:
        """Return a pool's newest record, if it is recent and says what is asked."""
        record, received_ms = self._newest.get(name, (None, 0.0))
        if record is None or record.asked is None or now_ms - received_ms > _SILENT_MS:
            return None
        return record

    def workers_before(self, now_ms: float) -> int:
        """Return the most workers of the cheaper pools: they have as many of the lane's partitions."""
        return sum(self._newest[name][0].most for name in self.cheaper(now_ms) if name in self._newest)

    def _is_short(self, name: str, now_ms: float) -> bool:
        since_ms = self._short_since_ms.get(name)
        return since_ms is not None and now_ms - since_ms >= _SHORT_MS
