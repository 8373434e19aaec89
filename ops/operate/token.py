"""Issue tokens for trying out. In production an identity provider or the shop's own server issues them."""

from pathlib import Path
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePrivateKey
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from gateway.access.identity import TokenRules, verify
from gateway.access.token_keys import KeySet, TokenKey, secret_key
from shared.errors import ProtocolError, SettingsError
from shared.settings import PREFIX
from shared.settings.auth import Algorithm, AuthSettings

_NO_KEY: Final = (
    f"there is no key to sign with: set {PREFIX}AUTH__SECRET_FILE as for the gateway (openssl rand -base64 48 > secret)"
    ", or use --private-key"
)


def mint_token(
    auth: AuthSettings,
    *,
    tenant: str,
    subject: str,
    ttl_s: int,
    now_unix_ms: float,
    private_key: Path | None = None,
    kid: str | None = None,
    edge: bool = False,
    agent: bool = False,
) -> str:
    """Return a token that a gateway with these settings accepts.

    Args:
        auth: the gateway's settings; the token is signed with their secret
        tenant: the shop
        subject: the customer
        ttl_s: seconds until it expires
        now_unix_ms: the current time
        private_key: a PEM file to sign with instead; its public key must be in the gateway's JWKS
        kid: the key's id in the JWKS
        edge: the token is for an edge
        agent: the token is for a person who answers the tenant's customers

    Raises:
        SettingsError: there is no key, or the gateway would refuse the token
    """
    key, public = _signing_key(auth, private_key)
    claims = {
        "iss": auth.issuer,
        "aud": auth.audience,
        "sub": subject,
        "tenant": tenant,
        "iat": now_unix_ms / 1_000,
        "exp": int(now_unix_ms / 1_000) + ttl_s,
        **({"edge": True} if edge else {}),
        **({"role": "agent"} if agent else {}),
    }
    token = jwt.encode(claims, key, algorithm=public.algorithm, headers={"kid": kid} if kid is not None else None)
    rules = TokenRules(issuer=auth.issuer, audience=auth.audience)
    try:
        verify(token, KeySet((TokenKey(public.algorithm, kid, public.material),)), rules, now_unix_ms)
    except ProtocolError as error:
        raise SettingsError(
            f"tenant {tenant!r}, subject {subject!r}: the gateway would refuse the token: {error}"
        ) from None
    return token


def _signing_key(auth: AuthSettings, private_key: Path | None) -> tuple[Any, TokenKey]:
    """Return the signing key and the verifying key."""
    if private_key is None:
        secret = auth.secret_bytes()
        if secret is None:
            raise SettingsError(_NO_KEY)
        return secret, secret_key(secret)
    try:
        key = load_pem_private_key(private_key.read_bytes(), password=None)
    except OSError as error:
        raise SettingsError(f"--private-key {private_key}: {error.strerror}") from None
    except (ValueError, TypeError):
        raise SettingsError(
            f"--private-key {private_key}: not a PEM private key without a passphrase; make one: openssl genpkey "
            "-algorithm ed25519"
        ) from None
    return key, TokenKey(_algorithm_of(key, private_key), None, key.public_key())


def _algorithm_of(key: object, path: Path) -> Algorithm:
    match key:
        case RSAPrivateKey():
            return "RS256"
        case EllipticCurvePrivateKey(curve=SECP256R1()):
            return "ES256"
        case Ed25519PrivateKey():
            return "EdDSA"
    raise SettingsError(f"--private-key {path}: an RSA, P-256 or Ed25519 key is needed")
