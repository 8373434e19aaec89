"""Read the HTTP requests that Chatwoot sends to a bot: check the signature, and find out whether a customer has asked
something. Pure.

A question is stored with an errand, a record of `chat.posts` that orders a gateway to post the answer into the Chatwoot
conversation. Chatwoot sends the requests from chatwoot/chatwoot:lib/webhooks/trigger.rb; the fields are those of
`webhook_data` in app/models/message.rb.
"""

import hashlib
import hmac
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from gateway.http.bodies import read_body
from shared.errors import ProtocolError
from shared.wire.codec import record_decoder
from shared.wire.fields import Count, Identifier
from shared.wire.outcome import Message
from shared.wire.session_key import SessionKey

_FRESH_S: Final = 300
# Webhooks use words; Chatwoot's API, and clients of it, use numbers.
_INCOMING: Final = ("incoming", "0")
_PENDING: Final = ("pending", "2")
_DIGITS: Final = 12
_MAC_CHARS: Final = 32

Id = Annotated[int, Meta(ge=1, le=2**31 - 1)]


class _Event(Struct):
    event: Any = None


class _Numbered(Struct):
    id: Id
    status: str = ""


class _Message(Struct):
    id: Count
    account: _Numbered
    conversation: _Numbered
    message_type: str
    content: str | None = None
    private: bool | None = None


class CustomerMessage(Struct, frozen=True):
    """A customer's message for the bot to answer. `text` is empty if the message is only a picture; `message` is its
    number in Chatwoot."""

    account: int
    conversation: int
    message: int
    text: str


def check_signature(headers: Mapping[str, str], body: bytes, key: bytes, now_unix_s: float) -> None:
    """Raise `ProtocolError` unless Chatwoot signed the body within the last five minutes."""
    sent = headers.get("x-chatwoot-timestamp", "")
    if not (sent.isascii() and sent.isdigit() and len(sent) <= _DIGITS):
        raise _refused("x-chatwoot-timestamp is not a time in Unix seconds")
    expected = "sha256=" + hmac.digest(key, f"{sent}.".encode() + body, hashlib.sha256).hex()
    given = headers.get("x-chatwoot-signature", "")
    if not hmac.compare_digest(expected.encode(), given.encode("utf-8", "replace")):
        raise _refused("x-chatwoot-signature does not match the bot's secret")
    if abs(now_unix_s - int(sent)) > _FRESH_S:
        raise _refused(f"it was signed more than {_FRESH_S} s ago, or the clocks differ")


def read_event(body: bytes) -> CustomerMessage | None:
    """Return the customer's message; None if the event is not a question for the bot. Raises `ProtocolError`."""
    if read_body(body, _Event).event != "message_created":
        return None
    message = read_body(body, _Message)
    wanted = message.message_type.lower() in _INCOMING and not message.private
    if not wanted or message.conversation.status.lower() not in _PENDING:
        return None
    return CustomerMessage(message.account.id, message.conversation.id, message.id, (message.content or "").strip())


def session_name(asked: CustomerMessage, key: bytes) -> str:
    """Return the name of a conversation's session. It shows the conversation's number, and can only be computed with
    the secret."""
    name = f"chatwoot-{asked.account}-{asked.conversation}"
    return f"{name}-{hmac.digest(key, name.encode(), hashlib.sha256).hex()[:_MAC_CHARS]}"


def _refused(why: str) -> ProtocolError:
    return ProtocolError("not_chatwoots", why, kind="authentication_error")


class Errand(Message, frozen=True, tag="chat.post"):
    """An answer to post to a conversation, without any of its text. `cursor` refers to the answer; without it there is
    no answer, for the reason `problem`."""

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
