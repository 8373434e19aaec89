"""How long the garbage collector stopped the process."""

import gc
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

_REMEMBERED = 10_000


@dataclass(slots=True)
class CollectorPauses:
    """Notes a pause without a lock: the collector may run inside any allocation, under any lock of this thread's, a
    metric's own among them. Whoever drains it counts."""

    _pauses: deque[float] = field(default_factory=lambda: deque(maxlen=_REMEMBERED))
    _start_s: float = 0.0

    def begin(self) -> None:
        gc.callbacks.append(self._called)

    def end(self) -> None:
        gc.callbacks.remove(self._called)

    def _called(self, phase: str, _: dict[str, Any]) -> None:
        if phase == "start":
            self._start_s = time.perf_counter()
        else:
            self._pauses.append(time.perf_counter() - self._start_s)

    def drain(self) -> list[float]:
        """Seconds of each pause since the last call."""
        return [self._pauses.popleft() for _ in range(len(self._pauses))]
