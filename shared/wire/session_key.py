"""The names of Redis keys.

All keys of a session contain it in a hash tag, so that a Redis Cluster stores them together and one transaction or
script may use them. Keys that a tenant's sessions share have the tenant's tag.
"""

import hashlib
from dataclasses import dataclass, field
from typing import Final, Literal

from shared.wire.fields import MAX_ID_CHARS

OWNED_PREFIX: Final = "subject:"

# docs/security.md lists what is kept under each name, and which process may read and write it.
SessionPart = Literal["turns", "erased", "withdrawn", "kv", "handoff", "running", "bad_answers", "place", "taken"]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One tenant's session. A tenant's name contains no slash, so no two sessions have the same keys. `record_key`, the
    key of the session's records, keeps them in order and at one worker while the group is stable."""

    tenant: str
    session_id: str
    record_key: bytes = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "record_key", f"{self.tenant}/{self.session_id}".encode())

    @property
    def digest(self) -> str:
        """Return a stable digest of the conversation that contains neither tenant nor session id."""
        return hashlib.blake2b(self.record_key, digest_size=8, person=b"replyline-digest").hexdigest()

    def redis_key(self, part: SessionPart) -> str:
        """Return the name of the Redis key for this part of the session."""
        return f"replyline:{{{self.tenant}/{self.session_id}}}:{part}"


def shared_key(tenant: str, name: bytes) -> str:
    """Return the key of a block shared by the tenant's sessions, in hex since people and ACL patterns read keys."""
    return f"replyline:{{{tenant}}}:kv:{name.hex()}"


def owned_session_id(subject: str, session_id: str) -> str:
    """Return the id that a subject's session has behind the gateway.

    No other subject and session give the same id, and no client may name it (docs/decisions/0013). It contains 224 bits
    of SHA-256; a session id contains no slash.
    """
    digest = hashlib.sha256(f"{session_id}/{subject}".encode()).hexdigest()
    return OWNED_PREFIX + digest[: MAX_ID_CHARS - len(OWNED_PREFIX)]
