"""Tokens: an issuer whose keys rotate and sometimes cannot be read, and the invalid tokens of strangers."""

from typing import TYPE_CHECKING, Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.access.jwks import KeysUnreadable
from gateway.access.token_keys import TokenKey
from shared.wire.session_key import SessionKey, owned_session_id
from tests.chaos.ledger.requests import conversation_of

if TYPE_CHECKING:
    from tests.world.virtual.loop import VirtualLoop

TENANTS: Final = ("demo", "garden")
SESSION: Final = "chat"  # the session id of every customer
STRANGERS: Final = ("no token", "an old token", "another's key", "another's algorithm", "another's service")
_ALWAYS_S: Final = 3_600.0
_OLD_S: Final = -60.0


def conversation(customer: str) -> SessionKey:
    """Return the key of a customer's session inside the system."""
    return SessionKey(tenant_of(customer), owned_session_id(conversation_of(customer), SESSION))


def tenant_of(customer: str) -> str:
    """Return the tenant of a customer."""
    return TENANTS[int(conversation_of(customer)[1:]) % len(TENANTS)]


class Issuer:
    """The one issuer. It signs with its newest key and publishes only that key."""

    def __init__(self, loop: "VirtualLoop") -> None:
        self._loop = loop
        self._number = 1
        self.away_until_s = 0.0

    def rotate(self) -> None:
        """Replace the key."""
        self._number += 1

    def read(self, *_: Any) -> tuple[TokenKey, ...]:
        """Replace `gateway.access.jwks.read_keys`."""
        if self._loop.now < self.away_until_s:
            raise KeysUnreadable("HTTP 503")
        return (TokenKey("EdDSA", str(self._number), _key(self._number).public_key()),)

    def token(self, customer: str, for_s: float = _ALWAYS_S) -> str:
        """Return a valid token."""
        return self._signed(customer, for_s, _key(self._number))

    def strangers(self, what: str, customer: str) -> str | None:
        """Return a token that must be refused."""
        match what:
            case "an old token":
                return self._signed(customer, _OLD_S, _key(self._number))
            case "another's key":
                return self._signed(customer, _ALWAYS_S, _key(0))
            case "another's algorithm":
                public = _key(self._number).public_key().public_bytes_raw()
                return self._signed(customer, _ALWAYS_S, public, algorithm="HS256")
            case "another's service":
                return self._signed(customer, _ALWAYS_S, _key(self._number), audience="another")
        return None

    def _signed(
        self, customer: str, for_s: float, key: Any, *, algorithm: str = "EdDSA", audience: str = "replyline"
    ) -> str:
        claims = {
            "iss": "replyline",
            "aud": audience,
            "exp": self._loop.world.wall_s() + for_s,
            "sub": conversation_of(customer),
            "tenant": tenant_of(customer),
        }
        return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": str(self._number)})


def _key(number: int) -> Ed25519PrivateKey:
    return Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)
