"""When a process that died by itself is started again."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

DEATHS: Final = 5
WITHIN_S: Final = 60.0
_FIRST_WAIT_S: Final = 0.5


@dataclass(slots=True)
class Restarts:
    """The deaths of one process, and how long each start after one waits."""

    _deaths_s: deque[float] = field(default_factory=lambda: deque(maxlen=DEATHS))

    def died(self, now_s: float) -> float | None:
        """Note a death and return the seconds until the next start: half a second, twice that for each further death
        within a minute. None at the fifth within a minute: it is not started again."""
        self._deaths_s.append(now_s)
        recent = sum(at > now_s - WITHIN_S for at in self._deaths_s)
        return None if recent == DEATHS else _FIRST_WAIT_S * 2.0 ** (recent - 1)
