"""Detached ed25519 signatures of a version's document, which names the sha256 of its manifest and golden prompts; the
manifest names that of every other file.

A signature is the 64 bytes alone, so `openssl pkeyutl -verify -rawin -pubin` checks it, too. A key's id is for people:
the first 16 hex digits of the sha256 of its 32 bytes.
"""

import hashlib
from pathlib import Path
from typing import Final

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key, load_pem_public_key

from shared.errors import SettingsError

SIGNATURE: Final = "version.json.sig"

_ID_CHARS: Final = 16


def key_id(key: Ed25519PublicKey) -> str:
    """Return a key's id."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()[:_ID_CHARS]


def signer(signature: bytes, signed: bytes, keys: dict[str, Ed25519PublicKey]) -> str | None:
    """Return the id of the key that made the signature; None if it is none of these keys."""
    for name, key in keys.items():
        try:
            key.verify(signature, signed)
        except InvalidSignature:
            continue
        return name
    return None


def read_trusted_keys(folder: Path) -> dict[str, Ed25519PublicKey]:
    """Return the public keys of a folder, by id. Raises `SettingsError` if it has no key, or a wrong one."""
    found = [read_public_key(path) for path in sorted(folder.glob("*.pem"))]
    if not found:
        raise SettingsError(f"{folder}: no public key (*.pem) in it; run: replyline versions keygen")
    return {key_id(key): key for key in found}


def read_public_key(path: Path) -> Ed25519PublicKey:
    """Raise `SettingsError` where the file holds no public ed25519 key in PEM."""
    try:
        key = load_pem_public_key(path.read_bytes())
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"{path}: {_cause(error, 'public')}; run: replyline versions keygen") from None
    if not isinstance(key, Ed25519PublicKey):
        raise SettingsError(f"{path}: not an ed25519 key; run: replyline versions keygen")
    return key


def _cause(error: Exception, kind: str) -> str:
    """Return why a file holds no key, without the PEM library's advice to programmers."""
    return (isinstance(error, OSError) and error.strerror) or f"no {kind} key in PEM"


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """Raise `SettingsError` where the file holds no private ed25519 key in PEM."""
    try:
        key = load_pem_private_key(path.read_bytes(), password=None)
    except TypeError:
        plain = f"openssl pkey -in {path} -out FILE"
        raise SettingsError(f"{path}: has a passphrase; write it without one to a safe place: {plain}") from None
    except (OSError, ValueError, UnsupportedAlgorithm) as error:
        raise SettingsError(f"{path}: {_cause(error, 'private')}; run: replyline versions keygen") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise SettingsError(f"{path}: not an ed25519 key; run: replyline versions keygen")
    return key
