"""Log rarely while a reader cannot read: it tries again five times a second, and nobody reads so many lines."""

from dataclasses import dataclass
from typing import Final

from shared.telemetry.logs import get_logger

_EVERY_S: Final = 60.0


@dataclass(slots=True)
class Outage:
    """`what` cannot be read: `still` says so at once, and once a minute for as long as the cause is the same."""

    what: str
    _cause: str = ""
    _next_s: float = 0.0

    def still(self, cause: str, now_s: float) -> None:
        """`now_s` is of the monotonic clock."""
        if cause == self._cause and now_s < self._next_s:
            return
        self._cause, self._next_s = cause, now_s + _EVERY_S
        get_logger().warning("unavailable", what=self.what, cause=cause, action="retrying")
