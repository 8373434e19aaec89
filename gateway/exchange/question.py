"""Hold the question of one request, its sender and its session's name, the same for every protocol. Pure."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from shared.errors import ProtocolError
from shared.wire.fields import MAX_TURNS, is_identifier
from shared.wire.messages import Said
from shared.wire.session_key import OWNED_PREFIX

# So long before its client gives up an answer is to be there.
_MARGIN_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The sender of one request. `address` is the client's, for charges, and `subject` a customer without a token;
    `own_address` is no other client's, and empty if none is known to be (`gateway.frontends.client_address`);
    `origins` are the web pages it comes from; without a `deadline_ms` the promise applies; `key` is the app's
    idempotency key; the deadline counts from `received_unix_ms`, or else from when it is asked."""

    address: str = ""
    own_address: str = ""
    origins: tuple[str, ...] = ()
    token: str | None = None
    subject: str = ""
    deadline_ms: int | None = None
    key: str | None = None
    is_retry: bool = False
    traceparent: str | None = None
    received_unix_ms: float | None = None


def patience_ms(wait_ms: float, promised_ms: int) -> int | None:
    """Return the deadline of a client that waits for less than is promised; None where the promise stands."""
    left_ms = wait_ms - _MARGIN_MS
    return max(1, int(left_ms)) if math.isfinite(left_ms) and left_ms < promised_ms else None


Role = Literal["user", "assistant", "system"]
_ROLES: Final[dict[str, Role]] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "model"), "assistant"),
}


def role_of(word: str, where: str) -> Role:
    """Return a message's role by the word of any chat interface. Raises `ProtocolError`."""
    if (role := _ROLES.get(word.lower())) is None:
        raise ProtocolError("unsupported_role", "no such role; use user, assistant or system", param=f"{where}.role")
    return role


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`body` is all that was sent: a retry's is the same. Without `turns` the history of this side is used.
    `system` is the text of the system messages that clients add by themselves: it is ignored if the token may not
    instruct. `options` are those of `response.create`. `ignored` names what was asked for and is not done."""

    body: bytes
    input: str
    turns: tuple[Said, ...] | None = None
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def digest(kind: str, *parts: str | bytes) -> str:
    """Return a name of that kind for these parts: the same at every gateway, and no other parts'."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8) + data)
    return f"{kind}-{hashed.hexdigest()}"


def conversation_of(texts: Iterable[tuple[Role, str]], where: str) -> tuple[tuple[Said, ...], str, str]:
    """Return the turns before the question, the question, which is the last messages of the user, and the instructions.
    Raises `ProtocolError`."""
    turns: list[Said] = []
    instructions = list[str]()
    asked, answered = list[str](), list[str]()
    said = list(texts)
    while said and said[-1][0] == "assistant" and not said[-1][1].strip():  # a place for the answer
        said.pop()
    for role, text in said:
        if role == "system":
            instructions.append(text)
            continue
        if role == "user" and answered:
            turns.append(_said(asked, answered))
            asked, answered = [], []
        (asked if role == "user" else answered).append(text)
    question = "\n\n".join(asked)
    if answered or not question.strip():
        raise ProtocolError("invalid_field", "the last message has to be the user's, and not blank", param=where)
    return tuple(turns[-MAX_TURNS:]), question, "\n\n".join(instructions).strip()


def _said(asked: list[str], answered: list[str]) -> Said:
    return Said(user="\n\n".join(asked), assistant="\n\n".join(answered))


def is_session_name(name: str) -> bool:
    """Return whether a client may name a session so."""
    return is_identifier(name) and not name.startswith(OWNED_PREFIX)


def session_name(names: Iterable[str | None]) -> str | None:
    """Return the session that the first of these names; None if all are empty. A name that no session can have is
    hashed. Any client that knows the name may open the session: these are names that clients chose for that."""
    name = next(filter(None, names), None)
    return name if name is None or is_session_name(name) else digest("conversation", name)
