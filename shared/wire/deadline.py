"""The absolute deadline of a request, from the socket to the last token.

Times are Unix milliseconds: on the wire by the wall clock, which gateways and workers on different machines share; in a
process by its own clock (`shared.process.clock`).
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

RESUMABLE_MS: Final = 120_000
"""An answer can be resumed for this long after its end: gateways, workers and Kafka keep what that needs."""

# 2001-09-09 to 2286-11-20 in seconds. Read as milliseconds these are days of early 1970, which no request has.
_FIRST_SECONDS: Final = 1_000_000_000
_LAST_SECONDS: Final = 9_999_999_999
_BINARY: Final = (4, 8)
_COUNTDOWN: Final = 0.03  # share of the promise's time: a client that sends its remaining time asks for a few ms less
_NEVER: Final = "0001-01-01T00:00:00"
_MAX_DIGITS: Final = 16  # of 2^53 - 1, the largest integer that every reader represents exactly


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """A request's deadlines.

    Attributes:
        first_token_unix_ms: the soft deadline. If there is no token at this time, the fallback answers.
        deadline_unix_ms: the hard deadline. Text that is not sent by this time is cut.
        promised: the shop's deadline if the client asked for an earlier one. Servers, workers and versions are judged
            by it, so a miss of an earlier deadline is no evidence against them.
    """

    first_token_unix_ms: int
    deadline_unix_ms: int
    promised: "Deadline | None" = field(default=None, compare=False)

    @classmethod
    def after(cls, now_unix_ms: float, *, first_token_ms: int, whole_ms: int) -> "Deadline":
        """Return the deadline of a request received now. A soft deadline after the hard one is moved to it."""
        hard = int(now_unix_ms) + whole_ms
        return cls(first_token_unix_ms=min(int(now_unix_ms) + first_token_ms, hard), deadline_unix_ms=hard)

    def later(self, ms: int) -> "Deadline":
        """Return the deadline on a clock that is `ms` ahead."""
        return Deadline(
            first_token_unix_ms=self.first_token_unix_ms + ms,
            deadline_unix_ms=self.deadline_unix_ms + ms,
            promised=None if self.promised is None else self.promised.later(ms),
        )

    def judged_by(self, promise: "Deadline", since_unix_ms: float) -> "Deadline":
        """Return this deadline, with the shop's `promise` attached if a part of this one is earlier.

        A difference small enough to come from a client's countdown of the promise does not count. Both start at
        `since_unix_ms`.
        """
        mine = self.first_token_unix_ms, self.deadline_unix_ms
        shops = promise.first_token_unix_ms, promise.deadline_unix_ms
        short = any(end < shop - _COUNTDOWN * (shop - since_unix_ms) for end, shop in zip(mine, shops, strict=True))
        return replace(self, promised=promise) if short else self

    def patience_s(self, now_unix_ms: float) -> float:
        """Return how long an answer may wait for a slow store: a quarter of the time that its first text has left, and
        at most a second."""
        return min(1.0, max(0.0, self.first_token_unix_ms - now_unix_ms) / 4_000)

    def expired(self, now_unix_ms: float, *, started: bool) -> bool:
        """Return whether an answer is too late now; `started` says whether it already has a first token."""
        return now_unix_ms >= (self.deadline_unix_ms if started else self.first_token_unix_ms)


def reads_as_seconds(unix_ms: int) -> bool:
    """Return whether a value that should be Unix milliseconds is in seconds: ten digits, as for times from 2001 to
    2286."""
    return _FIRST_SECONDS <= unix_ms <= _LAST_SECONDS


def parse_unix_ms(header: bytes) -> int | None:
    """Parse a time or another number from a header; return None for anything else.

    Accepts up to sixteen digits, with or without quotes and a trailing `.0`, a big-endian integer of 4 or 8 bytes, and
    an ISO time with its offset.
    """
    if len(header) in _BINARY and header[0] == 0:
        return int.from_bytes(header, "big")
    text = header.decode("ascii", "replace").strip(' "').removesuffix(".0")
    if text.isdigit():
        return int(text) if len(text) <= _MAX_DIGITS else None
    time = read_time(text)
    return max(0, time) if isinstance(time, int) else None


def read_time(said: object) -> object:
    """Convert an ISO 8601 time with its UTC offset, or a datetime, to Unix milliseconds; return any other value
    unchanged. The first moment of .NET's and Go's calendar, a time that was not set, needs no offset."""
    try:
        time = datetime.fromisoformat(said) if isinstance(said, str) else said
    except ValueError:
        return said
    if isinstance(time, datetime) and time.isoformat().startswith(_NEVER):
        return 0
    if not isinstance(time, datetime) or time.tzinfo is None:
        return said
    return int(time.timestamp() * 1_000)
