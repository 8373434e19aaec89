"""An errand of `chat.posts`: an answer that a conversation of Chatwoot waits for. Pure."""

import msgspec

from shared.errors import ProtocolError
from shared.wire.fields import Count, Identifier
from shared.wire.outcome import Message
from shared.wire.session_key import SessionKey


class Errand(Message, frozen=True, tag="chat.post"):
    """No word of the conversation stands in it. `cursor` leads to the answer; without one nobody could answer, for the
    reason `problem`."""

    account: Count
    conversation: Count
    tenant: Identifier
    session_id: Identifier
    created_unix_ms: Count
    cursor: str | None = None
    problem: str | None = None

    @property
    def session(self) -> SessionKey:
        return SessionKey(self.tenant, self.session_id)

    @property
    def path(self) -> str:
        return f"/api/v1/accounts/{self.account}/conversations/{self.conversation}"


_decode = msgspec.msgpack.Decoder(Errand).decode


def decode_errand(value: bytes | None) -> Errand:
    """Return the errand in a record. Raises `ProtocolError` for anything else."""
    try:
        return _decode(value or b"")
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise ProtocolError("invalid_record", f"not a chat.post: {error}") from None
