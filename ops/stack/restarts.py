"""Decide when a process that died is restarted."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

DEATHS: Final = 5
WITHIN_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.5


@dataclass(slots=True)
class Restarts:
    """The recent deaths of one process, and the delay before each restart."""

    _deaths_s: deque[float] = field(default_factory=lambda: deque(maxlen=DEATHS))

    def died(self, now_s: float) -> float | None:
        """Record a death and return the seconds until the restart: half a second, doubled for each further death within
        a minute. Return None at the fifth death within a minute: the process is not restarted."""
        self._deaths_s.append(now_s)
        recent = sum(at > now_s - WITHIN_S for at in self._deaths_s)
        return None if recent == DEATHS else _FIRST_WAIT_S * 2.0 ** (recent - 1)
