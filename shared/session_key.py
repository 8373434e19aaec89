"""What Redis' keys are called. All keys of a session hold it in a hash tag, so that a Redis Cluster keeps them together
and one transaction or script may touch them; what a tenant's sessions share has the tenant's tag.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SessionKey:
    """One tenant's session. A tenant's name holds no slash, so no two sessions have the same keys."""

    tenant: str
    session_id: str

    def of(self, what: str) -> str:
        """The key of the session's `turns`, `erased` or `kv`."""
        return f"replyline:{{{self.tenant}/{self.session_id}}}:{what}"


def shared_key(tenant: str, name: bytes) -> str:
    """The key of a block that the tenant's sessions share. In hex: people and ACL patterns read keys."""
    return f"replyline:{{{tenant}}}:kv:{name.hex()}"
