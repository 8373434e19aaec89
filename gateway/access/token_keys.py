"""The keys that tokens are checked with. Pure.

The type of a key determines its algorithm: HS256 for a secret, RS256 for RSA, ES256 for P-256, EdDSA for Ed25519. So no
token can have a public key used as a secret, regardless of its header (CVE-2015-9235). A key's id is only looked up
in the set; it is never used as a path or an address.
"""

from dataclasses import dataclass, field
from typing import Any, Final

import jwt
import msgspec

from shared.settings.auth import Algorithm

UNREADABLE: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What decoding raises: not JSON of this form, not UTF-8, or nested too deeply."""
_MIN_RSA_BITS: Final = 2_048  # RFC 7518, 3.3
_ALGORITHM_OF: Final[dict[tuple[str, str | None], Algorithm]] = {
    ("RSA", None): "RS256",
    ("EC", "P-256"): "ES256",
    ("OKP", "Ed25519"): "EdDSA",
}


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One key. `material` is the secret's bytes, or a public key of `cryptography`."""

    algorithm: Algorithm
    kid: str | None
    material: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class KeySet:
    """The known keys. `complete` is False while the newest keys could not be read, so an unknown key may be valid."""

    keys: tuple[TokenKey, ...] = ()
    complete: bool = True

    def find(self, algorithm: Algorithm, kid: str | None) -> TokenKey | None:
        """Return the key that a token names, or the only key of its algorithm if it names none. The secret has no id,
        so its id is ignored."""
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
    """Return the set's public signature keys (RFC 7517). Other entries, including secrets and private keys, are
    skipped. Raises `ValueError` if no key is left, because such a set would admit no client."""
    try:
        entries = msgspec.json.decode(data, type=_Jwks).keys
    except UNREADABLE as error:
        raise ValueError(f"not a JWKS: {error}") from None
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
