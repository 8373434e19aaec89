"""Track which generation a conversation is in. Pure.

A conversation begins in generation 0, and each erasure begins another. The new generation's number is the time of the
erasure in Unix milliseconds, or the previous number plus one if the clock shows less. A request belongs to the
generation that its gateway knew. It is erased if a later generation is known; clocks are not compared.
"""

from collections import OrderedDict
from typing import Final

from shared.wire.session_key import SessionKey

ERASED_FOR_S: Final = 3_600  # no request lives longer
LONGEST_OUTAGE_S: Final = 30 * 86_400
"""An edge may be cut off from its centre for so long, and bring turns that were asked before an erasure."""
MARKED_FOR_S: Final = LONGEST_OUTAGE_S + 86_400
"""Redis keeps a conversation's generation for so long: a day more, for clocks that differ."""

_CAPACITY: Final = 10_000


class Erasures:
    """The generations of the conversations erased in the last hour, as far as this process knows: the last so many."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._known: OrderedDict[SessionKey, tuple[int, float]] = OrderedDict()

    def add(self, session: SessionKey, generation: int, now_unix_ms: float) -> None:
        """Note that an erasure has begun this generation; an earlier one than is known changes nothing."""
        if generation <= self.generation(session, now_unix_ms):
            return
        self._known[session] = generation, now_unix_ms
        self._known.move_to_end(session)
        if len(self._known) > self._capacity:
            self._known.popitem(last=False)

    def generation(self, session: SessionKey, now_unix_ms: float) -> int:
        """Return the conversation's generation, 0 where no erasure is known."""
        generation, added_unix_ms = self._known.get(session, (0, now_unix_ms))
        return generation if now_unix_ms - added_unix_ms <= ERASED_FOR_S * 1_000 else 0

    def last(self, session: SessionKey) -> int:
        """Return the generation that the conversation's last known erasure began, of any age; 0 if no erasure is
        known."""
        return self._known.get(session, (0, 0.0))[0]

    def erased(self, session: SessionKey, generation: int, now_unix_ms: float) -> bool:
        """Return whether what belongs to that generation was erased."""
        return self.generation(session, now_unix_ms) > generation
