"""Hold the question of one request, the same for every protocol. Pure."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from shared.errors import ProtocolError
from shared.wire.fields import MAX_TURNS
from shared.wire.messages import Said

Role = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`body` is all that was sent: a retry's is the same. `turns` is None where the conversation is remembered here.
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
    for role, text in texts:
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
