"""Verify tokens. Pure: token, keys, revocations and time in, an identity or a refusal out.

Tokens are JSON Web Tokens in compact form (RFC 7519), checked according to RFC 8725: the key determines the algorithm,
not the token; `iss`, `aud` and `exp` are required and checked, `tenant` and `sub` are required; header fields other
than `alg` and `kid` (`jku`, `jwk`, `x5u`) are never followed. Only the canonical base64url encoding of a signature is
accepted. An error never quotes a token.
"""

import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final

import jwt
import msgspec
from jwt.types import Options

from gateway.access.token_keys import UNREADABLE, KeySet, TokenKey
from shared.errors import ErrorKind, ProtocolError
from shared.settings.auth import ALGORITHMS, Algorithm
from shared.wire.fields import Tenant

_COMPACT: Final = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+")
_MAX_UNIX_S: Final = 253_402_300_799  # the end of the year 9999
# Times are checked below against the caller's clock, and the subject together with our own claims.
_CHECKED: Final[Options] = {
    "require": ["iss", "aud", "exp", "sub", "tenant"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
    "verify_sub": False,
    "verify_jti": False,
}

Subject = Annotated[
    str, msgspec.Meta(min_length=1, max_length=255, pattern=r"^[^\x00-\x20\x7f][^\x00-\x1f\x7f]*(?!\n)$")
]


@dataclass(frozen=True, slots=True)
class Identity:
    """The identity in a token.

    Attributes:
        expires_unix_ms: when a session with this token ends
        instructs: the client may replace the shop's instructions to the model
        edge: the token belongs to an edge, which acts for every conversation of its tenant (docs/security.md)
        agent: the token has the role of a person who answers its tenant's customers
        name: how customers see that person; empty if the token does not say
        issued_unix_ms: when the token was issued; 0 if the token does not say
    """

    tenant: str
    subject: str
    expires_unix_ms: float
    instructs: bool = False
    edge: bool = False
    agent: bool = False
    name: str = ""
    issued_unix_ms: float = 0.0

    def same_person(self, other: "Identity") -> bool:
        """Return whether both may act in the same conversations: a subject's edge token reaches more than its other
        tokens."""
        return (self.tenant, self.subject, self.edge) == (other.tenant, other.subject, other.edge)


@dataclass(frozen=True, slots=True)
class TokenRules:
    issuer: str
    audience: str
    leeway_ms: float = 5_000.0  # allowed difference of the issuer's clock
    max_bytes: int = 8_192


@dataclass(slots=True)
class TokenGate:
    """The rules, the current keys, which the JWKS reader replaces, and the revocations.

    The clock by which tokens expire is `correction_ms` ahead of the times passed in. `revoked_until` maps tenant and
    subject to the time, in Unix milliseconds, up to which their tokens are revoked.
    """

    rules: TokenRules
    keys: KeySet
    correction_ms: Callable[[], float] = lambda: 0.0
    revoked_until: Mapping[tuple[str, str], float] = field(default_factory=dict)

    def identify(self, token: str, now_unix_ms: float) -> Identity:
        """Return the identity in a token. Raises `ProtocolError`: `unauthorized` for a revoked token (see `verify`)."""
        identity = verify(token, self.keys, self.rules, now_unix_ms + self.correction_ms())
        if self._revoked(identity):
            raise _refusal("the token is revoked; ask for a new one")
        return identity

    def expired(self, identity: Identity, now_unix_ms: float) -> bool:
        """Return whether the identity's token has expired, or was revoked since."""
        return now_unix_ms + self.correction_ms() >= identity.expires_unix_ms or self._revoked(identity)

    def _revoked(self, identity: Identity) -> bool:
        return identity.issued_unix_ms <= self.revoked_until.get((identity.tenant, identity.subject), -1.0)


class _Header(msgspec.Struct):
    alg: str
    kid: str | None = None
    crit: object = msgspec.UNSET


class _Claims(msgspec.Struct):
    exp: int | float
    sub: Subject
    tenant: Tenant
    nbf: int | float | None = None
    iat: int | float | None = None
    instructions: bool = False
    edge: bool = False
    role: object = None
    name: object = None


def verify(token: str, keys: KeySet, rules: TokenRules, now_unix_ms: float) -> Identity:
    """Return the identity in a token.

    Raises:
        ProtocolError: `token_expired`; `keys_unavailable` (retriable) if the token's key may be among those that could
            not be read; `unauthorized` otherwise
    """
    header = _header(token, rules)
    algorithm = _algorithm(header)
    key = keys.find(algorithm, header.kid)
    if key is None:
        raise _unknown_key(keys, algorithm)
    return _identity(_claims(token, key, rules), rules, now_unix_ms)


def lacks_key(token: str, keys: KeySet, rules: TokenRules) -> bool:
    """Return whether a token names an unknown key that newer public keys may include."""
    try:
        header = _header(token, rules)
        algorithm = _algorithm(header)
    except ProtocolError:
        return False
    return algorithm != "HS256" and keys.find(algorithm, header.kid) is None


def _header(token: str, rules: TokenRules) -> _Header:
    if len(token) > rules.max_bytes:
        raise _refusal(f"the token is longer than {rules.max_bytes} bytes")
    if not _COMPACT.fullmatch(token):
        raise _refusal("the token is not a signed JSON Web Token in compact form")
    segments = token.split(".")
    try:
        decoded = [urlsafe_b64decode(segment + "=" * (-len(segment) % 4)) for segment in segments]
    except ValueError:
        raise _refusal("the token is not base64url") from None
    if any(urlsafe_b64encode(data).rstrip(b"=").decode() != text for data, text in zip(decoded, segments, strict=True)):
        raise _refusal("the token is not base64url in its canonical form")
    try:
        header = msgspec.json.decode(decoded[0], type=_Header)
    except UNREADABLE:
        raise _refusal("the token's header cannot be read") from None
    if header.crit is not msgspec.UNSET:
        raise _refusal("the token's header demands extensions (crit) that are not supported")
    return header


def _algorithm(header: _Header) -> Algorithm:
    for algorithm in ALGORITHMS:
        if header.alg == algorithm:
            return algorithm
    raise _refusal(f"the token's algorithm is not one of {', '.join(ALGORITHMS)}")


def _unknown_key(keys: KeySet, algorithm: Algorithm) -> ProtocolError:
    if algorithm != "HS256" and not keys.complete:
        return _refusal(
            "the public keys cannot be read at the moment; try again",
            code="keys_unavailable",
            kind="server_error",
            retriable=True,
        )
    return _refusal("the token is signed with an unknown key")


def _claims(token: str, key: TokenKey, rules: TokenRules) -> _Claims:
    try:
        claims = jwt.decode(
            token,
            key=key.material,
            algorithms=[key.algorithm],
            audience=rules.audience,
            issuer=rules.issuer,
            options=_CHECKED,
        )
        return msgspec.convert(claims, _Claims)
    except jwt.InvalidIssuerError:
        raise _refusal("the token's issuer (iss) is not the one trusted here") from None
    except jwt.InvalidAudienceError:
        raise _refusal("the token is not meant for this service (aud)") from None
    # the error names the field, never its value
    except (jwt.MissingRequiredClaimError, msgspec.ValidationError) as error:
        raise _refusal(f"the token's claims are not valid: {error}") from None
    except (jwt.InvalidSignatureError, jwt.InvalidKeyError, TypeError):
        raise _refusal("the token's signature is not valid") from None
    except (jwt.PyJWTError, *UNREADABLE, ValueError):
        raise _refusal("the token's claims cannot be read") from None


def _identity(claims: _Claims, rules: TokenRules, now_unix_ms: float) -> Identity:
    """Return the identity in checked claims, judging its times by the caller's clock. (PyJWT would use the
    system's.)"""
    if not 0 <= claims.exp <= _MAX_UNIX_S:
        raise _refusal("the token's exp is not a valid time")
    for begin in (claims.nbf, claims.iat):
        if begin is not None and begin * 1_000 > now_unix_ms + rules.leeway_ms:
            raise _refusal("the token is not valid yet (nbf, iat)")
    expires_unix_ms = claims.exp * 1_000.0
    if now_unix_ms >= expires_unix_ms:  # it may still be valid by the issuer's clock
        expires_unix_ms += rules.leeway_ms
    if now_unix_ms >= expires_unix_ms:
        raise _refusal("the token has expired; ask for a new one", code="token_expired")
    return Identity(
        claims.tenant,
        claims.sub,
        expires_unix_ms,
        instructs=claims.instructions,
        edge=claims.edge,
        agent=claims.role == "agent",
        name=claims.name if isinstance(claims.name, str) else "",
        issued_unix_ms=(claims.iat or 0) * 1_000.0,
    )


def _refusal(
    message: str,
    *,
    code: str = "unauthorized",
    kind: ErrorKind = "authentication_error",
    retriable: bool = False,
) -> ProtocolError:
    return ProtocolError(code, message, kind=kind, param="token", retriable=retriable)
