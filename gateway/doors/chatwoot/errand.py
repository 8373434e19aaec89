"""An errand of `chat.posts`: an answer that a conversation of Chatwoot waits for. Pure."""

from collections.abc import Callable
from typing import Final

from shared.wire.codec import record_decoder
from shared.wire.fields import Count, Identifier
from shared.wire.outcome import Message
from shared.wire.session_key import SessionKey


class Errand(Message, frozen=True, tag="chat.post"):
    """It holds no word of the conversation. `cursor` leads to the answer; without one there is no answer, for the
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


decode_errand: Final[Callable[[bytes | None], Errand]] = record_decoder(Errand, "not a chat.post")
