"""What one request asks, whatever protocol it came in: pure."""

import hashlib
from dataclasses import dataclass, field
from typing import Any

from shared.wire.messages import Said


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`body` is all that was sent: a retry's is the same. `turns` is None where the conversation is remembered here.
    `options` are those of `response.create`."""

    body: bytes
    input: str
    turns: tuple[Said, ...] | None = None
    options: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, str] = field(default_factory=dict)


def digest(kind: str, *parts: str | bytes) -> str:
    """Return a name of that kind for these parts: the same at every gateway, and no other parts'."""
    hashed = hashlib.blake2b(digest_size=16)
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hashed.update(len(data).to_bytes(8) + data)
    return f"{kind}-{hashed.hexdigest()}"
