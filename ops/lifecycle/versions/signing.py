"""Make a key pair, and sign a stored version's document."""

import os
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from shared.errors import ModelError, SettingsError
from shared.settings.worker import ModelSettings
from shared.versions.signature import SIGNATURE, key_id, read_private_key
from shared.versions.store import DOCUMENT, open_version

_OWNERS_ALONE: Final = 0o600
_READABLE: Final = 0o644


def write_keys(private: Path, public: Path) -> str:
    """Write a new key pair; return its id. Raises `SettingsError` if a file is there already."""
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for path in (private, public):
        if path.exists():
            raise SettingsError(f"{path}: is there already; name another file: a key is never written over")
    for path, data, mode in ((private, secret, _OWNERS_ALONE), (public, shown, _READABLE)):
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(data)
    return key_id(key.public_key())


def sign(folder: Path, key_file: Path) -> str:
    """Sign the document of a stored version, and by the hashes in it the version's files; return the key's id.

    Raises:
        ModelError: the folder is no version of the store, or its document does not name the golden prompts
        SettingsError: the key cannot be read
    """
    key = read_private_key(key_file)
    store, again = ModelSettings(versions_dir=folder.parent), f"replyline versions add {folder} --key {key_file}"
    if not (folder / DOCUMENT).is_file():
        raise ModelError(f"{folder}: not a version of the store; add it to the store, signed: {again}")
    if open_version(store, folder.name).version.golden_sha256 is None:
        raise ModelError(f"{folder}: its document does not name its golden prompts; add it again, signed: {again}")
    write_signature(folder, key)
    return key_id(key.public_key())


def write_signature(folder: Path, key: Ed25519PrivateKey) -> None:
    """Write the signature of a version's document."""
    part = folder / f"{SIGNATURE}.part"
    part.write_bytes(key.sign((folder / DOCUMENT).read_bytes()))
    part.replace(folder / SIGNATURE)
