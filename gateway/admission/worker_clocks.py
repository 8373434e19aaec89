"""Find the workers whose clocks differ from the gateway's: pure.

A report says when it was written, and a difference may also be the time that it waited in Kafka. After Kafka was away
reports come late; soon afterwards they come in time again. So only a difference that lasts is the clock's.
"""

from dataclasses import dataclass, field
from typing import Final

# Less is the report's way here, and a network that stumbles.
_DIFFERS_MS: Final = 1_000.0
_LASTS_MS: Final = 5_000.0


@dataclass(slots=True)
class WorkerClocks:
    _differs_since: dict[str, float] = field(default_factory=dict)
    _told: set[str] = field(default_factory=set)

    def differs(self, worker_id: str, behind_ms: float, now_unix_ms: float) -> bool:
        """Note a report that was written `behind_ms` ago by the worker's clock; return whether that clock differs, once
        until it is right again."""
        if abs(behind_ms) < _DIFFERS_MS:
            self.forget(worker_id)
            return False
        since = self._differs_since.setdefault(worker_id, now_unix_ms)
        if worker_id in self._told or now_unix_ms - since < _LASTS_MS:
            return False
        self._told.add(worker_id)
        return True

    def forget(self, worker_id: str) -> None:
        """Forget a worker that has left."""
        self._differs_since.pop(worker_id, None)
        self._told.discard(worker_id)
