"""Log once when a service that a process depends on becomes unavailable, and once when it is available again."""

from dataclasses import dataclass
from typing import Final

from shared.telemetry.logs import get_logger

_AGAIN_S: Final = 60.0


@dataclass(slots=True)
class Availability:
    """The availability of one service.

    Attributes:
        what: the service's name in the log.
        logs_outages: whether to log; if several objects of a process watch the same service, only one of them does.
        cause: why it is unavailable; None while it is available.
        retry_at_s: the caller should not use it before this time.
    """

    what: str
    logs_outages: bool = True
    cause: str | None = None
    retry_at_s: float = 0.0
    _again_s: float = 0.0

    def mark_down(self, cause: str, *, retry_at_s: float = 0.0, **about: object) -> None:
        if self.cause is None and self.logs_outages:
            get_logger().warning("unavailable", what=self.what, cause=cause, **about)
        self.cause, self.retry_at_s = cause, retry_at_s

    def report_down(self, cause: str, now_s: float) -> None:
        """Log the cause: immediately when it changes, otherwise once a minute.

        For callers that retry several times a second and report success elsewhere.
        """
        if cause != self.cause or now_s >= self._again_s:
            self.cause, self._again_s = cause, now_s + _AGAIN_S
            get_logger().warning("unavailable", what=self.what, cause=cause, action="retrying")

    def mark_up(self) -> None:
        if self.cause is not None and self.logs_outages:
            get_logger().info("available", what=self.what)
        self.cause, self.retry_at_s = None, 0.0
