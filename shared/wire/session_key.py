"""The names of Redis' keys. All keys of a session hold it in a hash tag, so that a Redis Cluster keeps them together
and one transaction or script may touch them; what a tenant's sessions share has the tenant's tag.
"""

import hashlib
from dataclasses import dataclass
from typing import Final, Literal

from shared.wire.fields import MAX_ID_CHARS

OWNED_PREFIX: Final = "subject:"

# docs/security.md lists what is kept under each name, and which process may read and write it.
SessionPart = Literal["turns", "erased", "withdrawn", "kv", "handoff", "running", "bad_answers", "place", "taken"]


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One tenant's session. A tenant's name holds no slash, so no two sessions have the same keys."""

    tenant: str
    session_id: str

    @property
    def record_key(self) -> bytes:
        """The key of its records: their order stays, and one worker gets them while the group is stable."""
        return f"{self.tenant}/{self.session_id}".encode()

    @property
    def digest(self) -> str:
        """Return a name for the conversation that is the same everywhere and holds no name of its own."""
        return hashlib.blake2b(self.record_key, digest_size=8, person=b"replyline-digest").hexdigest()

    def of(self, part: SessionPart) -> str:
        """Return the name of the Redis key that holds this part of the session."""
        return f"replyline:{{{self.tenant}/{self.session_id}}}:{part}"


def shared_key(tenant: str, name: bytes) -> str:
    """Return the key of a block that the tenant's sessions share. In hex: people and ACL patterns read keys."""
    return f"replyline:{{{tenant}}}:kv:{name.hex()}"


def owned_session_id(subject: str, session_id: str) -> str:
    """Return the id of a subject's session everywhere behind the gateway: an id that no other subject's name and
    session give, and that no client may name (docs/decisions/0013). 224 bits of SHA-256; a session's id holds no
    slash."""
    digest = hashlib.sha256(f"{session_id}/{subject}".encode()).hexdigest()
    return OWNED_PREFIX + digest[: MAX_ID_CHARS - len(OWNED_PREFIX)]
