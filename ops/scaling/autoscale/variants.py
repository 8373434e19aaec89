"""How much of a lane's demand the cheaper pools of a lane leave to the next one. Pure.

Variants are pools of one lane and the same buckets on machines of different prices, for example a small and a large
GPU. The cheapest one is sized for all demand up to its most workers, the next one for what that cannot carry.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from shared.wire.scaling import ScalingRecord

_SILENT_MS: Final = 180_000.0  # an autoscaler writes a record each minute
_SHORT_MS: Final = 300_000.0  # pods that are not found for so long are not coming: no such machine is free


@dataclass(slots=True)
class Variants:
    """What the autoscalers of the cheaper pools have decided, by their records. A record may be a minute old.

    Attributes:
        cheaper: the names of the pools that are filled first, cheapest first; empty for the cheapest pool itself.
    """

    cheaper: tuple[str, ...]
    _newest: dict[str, tuple[ScalingRecord, float]] = field(default_factory=dict)  # with the time it was heard at
    _short_since_ms: dict[str, float] = field(default_factory=dict)

    def hear(self, record: ScalingRecord, now_ms: float) -> None:
        """Take in a record of any pool."""
        if record.pool not in self.cheaper:
            return
        self._newest[record.pool] = record, now_ms
        if record.found < record.wanted:
            self._short_since_ms.setdefault(record.pool, now_ms)
        else:
            self._short_since_ms.pop(record.pool, None)

    def rest(self, now_ms: float) -> float | None:
        """Return the share of the demand that is left, 0 to 1; None while a cheaper pool's autoscaler is silent."""
        rest = 1.0
        for name in self.cheaper:
            record = self._record(name, now_ms)
            if record is None or record.asked is None:
                return None
            workers = record.found if self._is_short(name, now_ms) else record.most
            carried = workers * record.carries * record.trust
            rest *= max(0.0, 1.0 - carried / record.asked) if record.asked > 0.0 else 0.0
        return rest

    def silent(self, now_ms: float) -> str:
        """Return the first cheaper pool whose autoscaler does not report what it is asked; empty if each does."""
        return next((name for name in self.cheaper if self._record(name, now_ms) is None), "")

    def _record(self, name: str, now_ms: float) -> ScalingRecord | None:
        """Return a pool's newest record, if it is recent and says what is asked."""
        record, heard_ms = self._newest.get(name, (None, 0.0))
        if record is None or record.asked is None or now_ms - heard_ms > _SILENT_MS:
            return None
        return record

    @property
    def workers_before(self) -> int:
        """Return the most workers of the cheaper pools: they have as many of the lane's partitions."""
        return sum(record.most for record in self._records())

    def _records(self) -> Iterator[ScalingRecord]:
        return (record for record, _ in self._newest.values())

    def _is_short(self, name: str, now_ms: float) -> bool:
        since_ms = self._short_since_ms.get(name)
        return since_ms is not None and now_ms - since_ms >= _SHORT_MS
