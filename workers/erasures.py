"""When conversations were erased, for what is still under way and ends later: pure."""

from collections import OrderedDict
from typing import Final

from shared.session_key import SessionKey

_CAPACITY: Final = 10_000


class Erasures:
    """The last so many."""

    def __init__(self, capacity: int = _CAPACITY) -> None:
        self._capacity = capacity
        self._unix_ms: OrderedDict[SessionKey, float] = OrderedDict()

    def add(self, session: SessionKey, now_unix_ms: float) -> None:
        self._unix_ms[session] = now_unix_ms
        self._unix_ms.move_to_end(session)
        if len(self._unix_ms) > self._capacity:
            self._unix_ms.popitem(last=False)

    def since(self, session: SessionKey, unix_ms: float) -> bool:
        """Whether a conversation was erased then or later."""
        return self._unix_ms.get(session, float("-inf")) >= unix_ms
