"""Make a key pair, and sign a model folder's manifest."""

import os
from pathlib import Path
from typing import Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from shared.errors import SettingsError
from shared.model.folder import MANIFEST, ModelFolder
from shared.versions.signature import SIGNATURE, key_id, read_private_key

_OWNERS_ALONE: Final = 0o600
_READABLE: Final = 0o644


def write_keys(private: Path, public: Path) -> str:
    """Write a new key pair; return its id. Raises `SettingsError` where a file is there already."""
    key = Ed25519PrivateKey.generate()
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    shown = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    for path in (private, public):
        if path.exists():
            raise SettingsError(f"{path}: is there already; name another file: a key is never written over")
    for path, data, mode in ((private, secret, _OWNERS_ALONE), (public, shown, _READABLE)):
        path.parent.mkdir(parents=True, exist_ok=True)
        with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, mode), "wb") as file:
            file.write(data)
    return key_id(key.public_key())


def sign(folder: Path, key_file: Path) -> str:
    """Sign a prepared model whose files were found to be whole; return the key's id. Raises `ModelError`,
    `SettingsError`."""
    key = read_private_key(key_file)
    ModelFolder.open(folder, verify=True)
    part = folder / f"{SIGNATURE}.part"
    part.write_bytes(key.sign((folder / MANIFEST).read_bytes()))
    part.replace(folder / SIGNATURE)
    return key_id(key.public_key())
