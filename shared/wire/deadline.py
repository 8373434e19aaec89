"""The promise: one absolute deadline, carried from the socket to the last token.

Times are Unix milliseconds: on the wire by the wall clock, the one that a gateway and a worker on different machines
can share; in a process by its own (`shared.process.clock`).
"""

from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final

# 2001-09-09 … 2286-11-20 as seconds; as milliseconds, days of 1970 in which nothing was asked.
_FIRST_SECONDS: Final = 1_000_000_000
_LAST_SECONDS: Final = 9_999_999_999
_BINARY: Final = (4, 8)
_COUNTDOWN: Final = 0.03  # of the promise's time: a client that sends what is left of it asks for a few ms less
_MAX_DIGITS: Final = 16  # of the largest integer that every reader holds exactly, 2^53 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """`first_token_unix_ms` is soft: past it, without a token, the fallback answers. `deadline_unix_ms` is hard:
    what is not written by then is cut. `promised` is the shop's deadline if the client asked for a sooner one: servers,
    workers and versions are judged by the promise, so a miss of a sooner deadline is no evidence against them."""

    first_token_unix_ms: int
    deadline_unix_ms: int
    promised: "Deadline | None" = field(default=None, compare=False)

    @classmethod
    def after(cls, now_unix_ms: float, *, first_token_ms: int, whole_ms: int) -> "Deadline":
        """Return the deadline of a request received now. A soft deadline beyond the hard one is brought back to it."""
        hard = int(now_unix_ms) + whole_ms
        return cls(first_token_unix_ms=min(int(now_unix_ms) + first_token_ms, hard), deadline_unix_ms=hard)

    def later(self, ms: int) -> "Deadline":
        """Return the deadline by a clock that is so far ahead."""
        return Deadline(
            first_token_unix_ms=self.first_token_unix_ms + ms,
            deadline_unix_ms=self.deadline_unix_ms + ms,
            promised=None if self.promised is None else self.promised.later(ms),
        )

    def judged_by(self, promise: "Deadline", since_unix_ms: float) -> "Deadline":
        """Return this deadline with the shop's `promise` in it if either part of this one is sooner by more than a
        client's countdown of the promise makes it. Both run from `since_unix_ms`."""
        mine = self.first_token_unix_ms, self.deadline_unix_ms
        shops = promise.first_token_unix_ms, promise.deadline_unix_ms
        short = any(end < shop - _COUNTDOWN * (shop - since_unix_ms) for end, shop in zip(mine, shops, strict=True))
        return replace(self, promised=promise) if short else self

    def expired(self, now_unix_ms: float, *, started: bool) -> bool:
        """Return whether an answer that has (`started`) or has not yet a first token is now too late."""
        return now_unix_ms >= (self.deadline_unix_ms if started else self.first_token_unix_ms)


def reads_as_seconds(unix_ms: int) -> bool:
    """Return whether what should be Unix milliseconds is plainly Unix seconds: ten digits, as every time in seconds has
    them from 2001 to 2286."""
    return _FIRST_SECONDS <= unix_ms <= _LAST_SECONDS


def parse_unix_ms(header: bytes) -> int | None:
    """Return a time, or another number, as a header has it: up to sixteen digits, with quotes or without, `.0` after
    them or not, a big-endian integer of 4 or 8 bytes, or an ISO time with its offset. None for anything else."""
    if len(header) in _BINARY and header[0] == 0:
        return int.from_bytes(header, "big")
    text = header.decode("ascii", "replace").strip(' "').removesuffix(".0")
    if text.isdigit():
        return int(text) if len(text) <= _MAX_DIGITS else None
    time = read_time(text)
    return time if isinstance(time, int) else None


def read_time(said: object) -> object:
    """Return a time that is written in ISO 8601 with its offset from UTC, or is one already, in Unix milliseconds;
    anything else as it is."""
    try:
        time = datetime.fromisoformat(said) if isinstance(said, str) else said
    except ValueError:
        return said
    if not isinstance(time, datetime) or time.tzinfo is None:
        return said
    return int(time.timestamp() * 1_000)
