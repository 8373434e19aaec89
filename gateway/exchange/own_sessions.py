"""Give a conversation name to each question that comes without one, as OpenAI's interface allows.

A client library repeats a request if its connection breaks. The repeated request must get the same name as the first
one, so that the answer is not computed twice; a question of any other client must get another name.
"""

import secrets
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gateway.exchange.question import Asker, ClientQuestion, digest
from gateway.request.cursor import CursorKey
from shared.errors import ProtocolError
from shared.wire.deadline import RESUMABLE_MS

_MAX_TRIES: Final = 10_000
# How long the name derived from a key stays the same.
_KEY_WINDOW_MS: Final = 600_000.0
# A shorter key may be a counter or a word, which another customer may send too.
_SHORTEST_KEY_CHARS: Final = 16


class _Try(NamedTuple):
    """A first try. `session` is empty if several came with the same text, because each may be another customer's."""

    session: str
    input_digest: str
    asked_unix_ms: float


@dataclass(slots=True)
class OwnSessions:
    """Owned by the gateway's event loop. `key` is the secret that all gateways share."""

    key: CursorKey
    _tries: OrderedDict[str, _Try] = field(default_factory=OrderedDict)

    def name(
        self, sender: str, asker: Asker, question: ClientQuestion, now_unix_ms: float, *, is_shared: bool = False
    ) -> str:
        """Return the conversation of a question that names none.

        A question with an `Idempotency-Key` gets a name derived from the secret, the sender, the key, the turns and the
        input, which is the same at every gateway with that secret. Any other question gets a random name, except a
        marked retry: it gets the name of its first try if this gateway received exactly one question with this body
        from this sender. Questions of unknown senders always get random names.

        Args:
            sender: the client's token, or its own address if no tokens are checked; empty if unknown
            asker: the sender of the request
            question: the question
            now_unix_ms: the time by the gateways' common clock
            is_shared: the sender is an address, which several customers may have. A retry is found by a key that only
                one of them can know

        Raises:
            ProtocolError: the key was used for another question within the last two minutes
        """
        if not sender or (is_shared and len(asker.key or "") < _SHORTEST_KEY_CHARS):
            return _random_name()
        kind, told = ("body", question.body) if asker.key is None else ("key", asker.key)
        said = (text for turn in question.turns or () for text in (turn.user, turn.assistant))
        name, asked = digest(kind, sender, told), digest("input", *said, question.input)
        known = self._tries.get(name)
        if known is not None and now_unix_ms - known.asked_unix_ms > RESUMABLE_MS:
            known = None
        if asker.key is not None:
            if known is not None and known.input_digest != asked:
                why = "this Idempotency-Key was used for another question; send a new one"
                raise ProtocolError("key_reused", why, param="input")
            window = str(int(now_unix_ms // _KEY_WINDOW_MS))
            session = known.session if known is not None else self.key.name("own", sender, asker.key, asked, window)
        elif asker.is_retry and known is not None and known.session:
            return known.session
        else:
            session = _random_name()
        kept = session if known is None or asker.key is not None else ""
        self._tries[name] = _Try(kept, asked, now_unix_ms)
        self._tries.move_to_end(name)
        if len(self._tries) > _MAX_TRIES:
            self._tries.popitem(last=False)
        return session


def _random_name() -> str:
    return f"own-{secrets.token_hex(16)}"
