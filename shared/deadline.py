"""The promise: one absolute deadline, carried from the socket to the last token.

Times are Unix milliseconds, the one clock that a gateway and a worker on different machines can share.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Deadline:
    """`first_token_unix_ms` is soft: past it, without a token, the fallback answers. `deadline_unix_ms` is hard:
    what is not written by then is cut."""

    first_token_unix_ms: int
    deadline_unix_ms: int

    @classmethod
    def after(cls, now_unix_ms: float, *, first_token_ms: int, whole_ms: int) -> "Deadline":
        """The deadline of a request received now. A soft deadline beyond the hard one is brought back to it."""
        hard = int(now_unix_ms) + whole_ms
        return cls(first_token_unix_ms=min(int(now_unix_ms) + first_token_ms, hard), deadline_unix_ms=hard)

    def expired(self, now_unix_ms: float, *, started: bool) -> bool:
        """Whether an answer that has (`started`) or has not yet a first token is now too late."""
        return now_unix_ms >= (self.deadline_unix_ms if started else self.first_token_unix_ms)
