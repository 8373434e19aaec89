"""Tokens and keys for tests, made by `cryptography` and by hand: good ones, and what an attacker writes."""

import hashlib
import hmac
import json
import os
import time
from base64 import urlsafe_b64encode
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from gateway.access.identity import TokenGate, TokenRules
from gateway.access.token_keys import KeySet, parse_jwks, secret_key
from shared.settings.auth import Algorithm

NOW_UNIX_S = 1_800_000_000
NOW_UNIX_MS = NOW_UNIX_S * 1_000.0
SECRET = b"a secret of thirty-two bytes or more"
PrivateKey = RSAPrivateKey | EllipticCurvePrivateKey | Ed25519PrivateKey

RSA = rsa.generate_private_key(65_537, 2_048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
PRIVATE: dict[Algorithm, PrivateKey] = {"RS256": RSA, "ES256": EC, "EdDSA": ED}
RULES = TokenRules(issuer="replyline", audience="replyline", max_bytes=8_192)


def jwk(key: PrivateKey, **fields: Any) -> dict[str, Any]:
    """The public half."""
    kinds: dict[type[Any], type[Any]] = {
        RSAPrivateKey: jwt.algorithms.RSAAlgorithm,
        EllipticCurvePrivateKey: jwt.algorithms.ECAlgorithm,
        Ed25519PrivateKey: jwt.algorithms.OKPAlgorithm,
    }
    (algorithm,) = [algorithm for kind, algorithm in kinds.items() if isinstance(key, kind)]
    written: dict[str, Any] = algorithm.to_jwk(key.public_key(), as_dict=True)
    written.pop("key_ops", None)
    return {**written, **fields}


def jwks(*keys: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(keys)}).encode()


JWKS = jwks(jwk(RSA, kid="rsa"), jwk(EC, kid="ec"), jwk(ED, kid="ed"))
KID: dict[Algorithm, str] = {"RS256": "rsa", "ES256": "ec", "EdDSA": "ed"}
KEYS = KeySet((secret_key(SECRET), *parse_jwks(JWKS)))


def gate() -> TokenGate:
    return TokenGate(RULES, KEYS)


def claims(**changed: Any) -> dict[str, Any]:
    """Good ones, with changes; a value of None leaves the claim out."""
    good = {"iss": "replyline", "aud": "replyline", "exp": NOW_UNIX_S + 60, "sub": "alice", "tenant": "demo"}
    return {name: value for name, value in (good | changed).items() if value is not None}


def token(algorithm: Algorithm = "HS256", *, headers: dict[str, Any] | None = None, **changed: Any) -> str:
    """A token that is good but for what is changed of its claims and headers; None leaves one out."""
    key: Any = SECRET if algorithm == "HS256" else PRIVATE[algorithm]
    named = ({"kid": KID[algorithm]} if algorithm in KID else {}) | (headers or {})
    written = {name: value for name, value in named.items() if value is not None}
    return jwt.encode(claims(**changed), key, algorithm=algorithm, headers=written)


def bearer_of(subject: str, **claims: Any) -> dict[str, str]:
    """Return the header of a token that is valid for a minute: make it in the test, which may run long after the
    tests are collected."""
    assert "exp" in claims or "PYTEST_CURRENT_TEST" in os.environ, "the token would have expired when the test runs"
    return {"authorization": f"Bearer {token(sub=subject, **{'exp': time.time() + 60} | claims)}"}


def by_hand(header: Any, payload: Any, secret: bytes = SECRET) -> str:
    """Return a token signed with HMAC-SHA256, even if the header names another algorithm."""
    signed = f"{segment(header)}.{segment(payload)}"
    return f"{signed}.{b64(hmac.digest(secret, signed.encode(), hashlib.sha256))}"


def segment(value: Any) -> str:
    return b64(value if isinstance(value, bytes) else json.dumps(value).encode())


def b64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def public_pem(key: PrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
