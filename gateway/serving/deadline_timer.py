"""One timer of the event loop for the earliest of many moments."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from shared.process.clock import now_unix_ms


@dataclass(slots=True)
class DeadlineTimer:
    """`rings` is called once, at or after the earliest moment that was set since."""

    rings: Callable[[], None]
    _timer: asyncio.TimerHandle | None = None
    _timer_unix_ms: int = 0

    def set(self, due_unix_ms: int | None) -> None:
        """Never later than it is set already; None: nothing is due."""
        if due_unix_ms is None or (self._timer is not None and self._timer_unix_ms <= due_unix_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_unix_ms = due_unix_ms
        delay_s = max(0.0, (due_unix_ms - now_unix_ms()) / 1_000)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.rings()
