"""The question of one request, its sender and its session's name, the same for every protocol. Pure."""

import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from shared.errors import ProtocolError
from shared.wire.fields import MAX_TURNS, is_identifier
from shared.wire.messages import Said
from shared.wire.session_key import OWNED_PREFIX

# An answer is due this long before its client gives up.
_MARGIN_MS: Final = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Asker:
    """The sender of one request.

    Attributes:
        address: the client's address, to which usage is charged
        own_address: an address that no other client has; empty if unknown (`gateway.frontends.client_address`)
        origins: the web pages that the request comes from
        subject: identifies a customer without a token
        deadline_ms: the client's deadline; None means the promise
        key: the idempotency key
        received_unix_ms: when the deadline starts; None means when the question is asked
    """

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
    """Return the deadline of a client that waits for less time than promised; None if the promise applies."""
    left_ms = wait_ms - _MARGIN_MS
    return max(1, int(left_ms)) if math.isfinite(left_ms) and left_ms < promised_ms else None


Role = Literal["user", "assistant", "system", "program"]
"""`program`: a tool's result, which no person said."""
_ROLES: Final[dict[str, Role]] = {
    **dict.fromkeys(("system", "developer"), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "ai", "bot", "model"), "assistant"),
    **dict.fromkeys(("tool", "function", "data"), "program"),
}


def role_of(word: str, where: str) -> Role:
    """Return the role that a word of any chat interface denotes. Raises `ProtocolError`."""
    if (role := _ROLES.get(word.lower())) is None:
        raise ProtocolError("unsupported_role", "unknown role; use user, assistant or system", param=f"{where}.role")
    return role


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuestion:
    """The question of one request.

    Attributes:
        body: the complete request body, which a retry repeats
        turns: the conversation so far; None means that the stored history is used
        system: the text of system messages; ignored unless the token may give instructions
        options: options of `response.create`
        ignored: names of requested options that are not supported
    """

    body: bytes
    input: str
    turns: tuple[Said, ...] | None = None
    system: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()


def digest(kind: str, *parts: str | bytes) -> str:
    """Return a name made of `kind` and a digest of the parts: the same at every gateway."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8) + data)
    return f"{kind}-{hashed.hexdigest()}"


def conversation_of(texts: Iterable[tuple[Role, str]], where: str) -> tuple[tuple[Said, ...], str, str]:
    """Split a chat's messages into the turns before the question, the question (the user's last messages) and the
    instructions. Raises `ProtocolError`."""
    turns: list[Said] = []
    instructions = list[str]()
    asked, answered = list[str](), list[str]()
    said = list(texts)
    while said and said[-1][0] == "assistant" and not said[-1][1].strip():  # a placeholder for the answer
        said.pop()
    for role, text in said:
        if role == "system":
            instructions.append(text)
            continue
        if role == "user" and answered:
            turns.append(_said(asked, answered))
            asked, answered = [], []
        (asked if role == "user" else answered).append(text)
    question = "\n\n".join(filter(None, asked))
    if answered or not question.strip():
        raise ProtocolError("invalid_field", "the last message must be the user's and not blank", param=where)
    return tuple(turns[-MAX_TURNS:]), question, "\n\n".join(instructions).strip()


def _said(asked: list[str], answered: list[str]) -> Said:
    return Said(user="\n\n".join(filter(None, asked)), assistant="\n\n".join(answered))


def is_session_name(name: str) -> bool:
    """Return whether a client may use this session name."""
    return is_identifier(name) and not name.startswith(OWNED_PREFIX)


def session_name(names: Iterable[str | None]) -> str | None:
    """Return the session that the first non-empty name denotes; None if all are empty. A name that is no valid session
    id is hashed. Any client that knows the name may open the session, as clients chose it for that."""
    name = next(filter(None, names), None)
    return name if name is None or is_session_name(name) else digest("conversation", name)
