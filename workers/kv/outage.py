"""When something that failed is tried again, and what of it is worth a line in the log: pure."""

from dataclasses import dataclass


@dataclass(slots=True)
class Outage:
    """An outage: whether something has failed, and when to try it again. It tells which failure is the first, so that
    it is logged once."""

    retry_after_ms: float
    begun: bool = False
    retry_at_ms: float = 0.0

    def fail(self, now_ms: float) -> bool:
        """Note a failure; return True for the first of several."""
        first, self.begun = not self.begun, True
        self.retry_at_ms = now_ms + self.retry_after_ms
        return first

    def succeed(self) -> bool:
        """Note a success; return True for the first after failures."""
        ended, self.begun, self.retry_at_ms = self.begun, False, 0.0
        return ended

    def due_in_ms(self, now_ms: float) -> float:
        """0 where it may be tried."""
        return max(0.0, self.retry_at_ms - now_ms)
