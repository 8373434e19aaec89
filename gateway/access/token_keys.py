"""Hold the keys that tokens are checked with. Pure.

A key has one algorithm, by its type: a secret HS256, an RSA key RS256, a P-256 key ES256, an Ed25519 key EdDSA. So no
token can have a public key used as a secret, whatever its header claims (CVE-2015-9235). A key's id is looked up in the
set and is nothing else: no path, no address.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import jwt
import msgspec

from shared.settings.auth import Algorithm

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: not JSON of this form, text that is not UTF-8, or nesting without end."""
_MIN_RSA_BITS: Final = 2_048  # RFC 7518, 3.3
_ALGORITHM_OF: Final[dict[tuple[str, str | None], Algorithm]] = {
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}


@dataclass(frozen=True, slots=True)
class TokenKey:
    """`material` is the secret's bytes, or a public key of `cryptography`."""

    algorithm: Algorithm
    kid: str | None
    material: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """`complete` is false while the newest keys could not be read: one that is not in the set may exist then."""

    keys: tuple[TokenKey, ...] = ()
    complete: bool = True

    def find(self, algorithm: Algorithm, kid: str | None) -> TokenKey | None:
        """Return the key that a token names. One that names none is checked by the only key of its algorithm; the
        secret's has no name, so a name is not asked for."""
        fitting = [key for key in self.keys if key.algorithm == algorithm]
        if kid is not None and algorithm != "HS256":
            return next((key for key in fitting if key.kid == kid), None)
        return fitting[0] if len(fitting) == 1 else None


class _Jwk(msgspec.Struct):
    kty: str
    crv: str | None = None
    kid: str | None = None
    use: str | None = None
    alg: str | None = None
    key_ops: list[str] | None = None
    d: object = None


class _Jwks(msgspec.Struct):
    keys: list[msgspec.Raw]


def secret_key(secret: bytes) -> TokenKey:
    return TokenKey("HS256", None, secret)


def parse_jwks(data: bytes) -> tuple[TokenKey, ...]:
    """Return the set's public signature keys (RFC 7517); others, secrets and private keys among them, are skipped.

    Raises `ValueError` where none is left: a set that admits no client is a fault."""
    try:
        entries = msgspec.json.decode(data, type=_Jwks).keys
    except UNREADABLE as error:
        raise ValueError(f"no JWKS: {error}") from None
    found: dict[tuple[str, str | None], TokenKey] = {}
    for entry in entries:
        key = _public_key(entry)
        if key is not None:
            found.setdefault((key.algorithm, key.kid), key)
    if not found:
        raise ValueError("no RSA (2048 bits at least), P-256 or Ed25519 signature key in the JWKS")
    return tuple(found.values())


def _public_key(entry: msgspec.Raw) -> TokenKey | None:
    try:
        jwk = msgspec.json.decode(entry, type=_Jwk)
    except UNREADABLE:
        return None
    algorithm = _ALGORITHM_OF.get((jwk.kty, jwk.crv))
    if algorithm is None or jwk.d is not None or jwk.alg not in {None, algorithm} or not _for_signatures(jwk):
        return None
    try:
        material = jwt.PyJWK(msgspec.json.decode(entry), algorithm=algorithm).key
    except (jwt.PyJWTError, ValueError):
        return None
    if algorithm == "RS256" and material.key_size < _MIN_RSA_BITS:
        return None
    return TokenKey(algorithm, jwk.kid, material)


def _for_signatures(jwk: _Jwk) -> bool:
    return jwk.use in {None, "sig"} and (jwk.key_ops is None or "verify" in jwk.key_ops)
