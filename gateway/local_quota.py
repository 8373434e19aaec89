"""Requests a minute, counted in this process alone: what a gateway goes by while it cannot ask the others. Pure."""

from collections import OrderedDict
from typing import Final

_MINUTE_MS: Final = 60_000.0
_ROUNDING_MS: Final = 0.5  # what a minute's worth of sums of Unix milliseconds may be off


class LocalQuota:
    """A token bucket a name, a minute's worth deep; at most `max_names`, the longest unused forgotten first."""

    def __init__(self, max_names: int = 10_000) -> None:
        self._max_names = max_names
        self._full_unix_ms: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        return len(self._full_unix_ms)

    def take(self, name: str, per_minute: int, now_unix_ms: float) -> float:
        """0 where a request may pass, which is counted then; else how many ms until one may.

        A bucket is known by when it will be full again (the generic cell rate algorithm, ITU-T I.371): each request
        moves that by its share of the minute, and it may not lie more than a minute ahead: where a clock that was set
        back says that it does, the bucket is empty.
        """
        share_ms = _MINUTE_MS / per_minute
        known_unix_ms = min(self._full_unix_ms.get(name, 0.0), now_unix_ms + _MINUTE_MS + _ROUNDING_MS)
        full_unix_ms = max(known_unix_ms, now_unix_ms) + share_ms
        wait_ms = full_unix_ms - now_unix_ms - _MINUTE_MS
        if wait_ms > _ROUNDING_MS:
            self._full_unix_ms[name] = known_unix_ms
            return wait_ms
        self._full_unix_ms[name] = full_unix_ms
        self._full_unix_ms.move_to_end(name)
        if len(self._full_unix_ms) > self._max_names:
            self._full_unix_ms.popitem(last=False)
        return 0.0
