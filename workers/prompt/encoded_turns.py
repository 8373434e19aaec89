"""The tokens of what was said, for the questions after it: by conversation, so that one is forgotten and no other.

Pure.
"""

from collections import OrderedDict
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from shared.model.chat_template import Ids
from shared.wire.session_key import SessionKey

TurnEncoder = Callable[[str, str, Ids], Ids]

_CONVERSATIONS: Final = 256
_TURNS: Final = 64  # more than a prompt has


class EncodedTurns:
    """Encoded turns of the last so many conversations; in memory only. Owned by one thread; an encoder may be used on
    another."""

    def __init__(self, encode: TurnEncoder, *, conversations: int = _CONVERSATIONS) -> None:
        self._encode = encode
        self._most = conversations
        self._encoders: OrderedDict[SessionKey, TurnEncoder] = OrderedDict()

    def of(self, session: SessionKey) -> TurnEncoder:
        """Return the encoder that remembers a conversation's turns, until it is forgotten. Who holds it from before its
        turns are read leaves nothing of them in a later one."""
        encoder = self._encoders.get(session)
        if encoder is None:
            encoder = self._encoders[session] = lru_cache(_TURNS)(self._encode)
        self._encoders.move_to_end(session)
        if len(self._encoders) > self._most:
            self._encoders.popitem(last=False)
        return encoder

    def forget(self, session: SessionKey) -> None:
        """Forget a conversation that was erased."""
        self._encoders.pop(session, None)
