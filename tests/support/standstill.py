"""What a machine that other work is on takes from those who hold answers to the clock."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.support.wire import Answer

GRACE_S = 0.25
# Next to other tests a process may have to wait for a core while this one has one; the faults are seconds late.
BESIDE_OTHERS_S = 1.0
_TICK_S = 0.01

InTime = Callable[[Answer, float], bool]


@dataclass(slots=True)
class Standstill:
    """Ticks in the test's own event loop; a tick that comes late is time in which this machine ran others. Besides, an
    answer may be late by `grace_s`."""

    grace_s: float = GRACE_S
    _late: list[tuple[float, float]] = field(default_factory=list)

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            due_s = time.monotonic() + _TICK_S
            await asyncio.sleep(_TICK_S)
            if (now_s := time.monotonic()) > due_s + _TICK_S:
                self._late.append((due_s, now_s))

    def seconds(self, begin_s: float, end_s: float) -> float:
        """Return how long the machine stalled between these moments of the monotonic clock."""
        return sum(max(0.0, min(end, end_s) - max(begin, begin_s)) for begin, end in self._late)

    def in_time(self, answer: Answer, deadline_ms: float) -> bool:
        """Return whether the answer came within its deadline and the grace period, if the machine ran all the time."""
        took_s = answer.took_s - self.seconds(answer.asked_at, answer.done_at)
        return took_s <= deadline_ms / 1_000 + self.grace_s
