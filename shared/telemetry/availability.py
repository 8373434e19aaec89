"""Tell the log once when something that a process leans on goes, and once when it is back."""

from dataclasses import dataclass
from typing import Final

from shared.telemetry.logs import get_logger

_AGAIN_S: Final = 60.0


@dataclass(slots=True)
class Availability:
    """`cause` says why `what` is away, None where it is there. It is left alone until `retry_at_s`. `tells`: several in
    a process may watch the same, and one of them logs."""

    what: str
    tells: bool = True
    cause: str | None = None
    retry_at_s: float = 0.0
    _again_s: float = 0.0

    def down(self, cause: str, *, retry_at_s: float = 0.0, **about: object) -> None:
        if self.cause is None and self.tells:
            get_logger().warning("unavailable", what=self.what, cause=cause, **about)
        self.cause, self.retry_at_s = cause, retry_at_s

    def still(self, cause: str, now_s: float) -> None:
        """Say at once why nothing can be read there, and once a minute for as long as the cause is the same: what tries
        five times a second says when it is back by what it reads."""
        if cause != self.cause or now_s >= self._again_s:
            self.cause, self._again_s = cause, now_s + _AGAIN_S
            get_logger().warning("unavailable", what=self.what, cause=cause, action="retrying")

    def up(self) -> None:
        if self.cause is not None and self.tells:
            get_logger().info("available", what=self.what)
        self.cause, self.retry_at_s = None, 0.0
