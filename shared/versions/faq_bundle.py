"""The FAQ as edges get it: a version and the entries in one document, with a detached ed25519 signature."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from shared.errors import SettingsError
from shared.faq.entries import FaqEntry, entries_of, read_entries, read_files
from shared.versions.signature import signer
from shared.wire.fields import Count

SUFFIX: Final = ".sig"
_MEANT_FOR: Final = b"replyline-faq\n"  # the same key may sign models


class _Document(msgspec.Struct, forbid_unknown_fields=True):
    version: Count
    entries: list[msgspec.Raw]


@dataclass(frozen=True, slots=True)
class Bundle:
    """A version of the FAQ. `faq` is the FAQ file that holds its `entries`; `document` is what was signed."""

    version: int
    entries: tuple[FaqEntry, ...]
    faq: bytes
    document: bytes
    signature: bytes

    @classmethod
    def read(cls, document: bytes, signature: bytes, name: str) -> "Bundle":
        """Read a document. Raises `SettingsError` with `name` if it is no FAQ, or not a valid one."""
        try:
            found = msgspec.json.decode(document, type=_Document)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise SettingsError(f"{name}: no signed FAQ ({error}); run: replyline faq sign") from None
        faq = msgspec.json.encode(found.entries)
        return cls(found.version, tuple(entries_of(faq, name)), faq, document, signature)

    @classmethod
    def open(cls, path: Path) -> "Bundle":
        """Read a document and its signature. Raises `SettingsError`."""
        try:
            document, signature = path.read_bytes(), signature_of(path).read_bytes()
        except OSError as error:
            raise SettingsError(f"{error.filename}: {error.strerror}; run: replyline faq sign") from None
        return cls.read(document, signature, str(path))

    def signer(self, keys: dict[str, Ed25519PublicKey]) -> str | None:
        """Return the id of the key that signed it; None if no key did."""
        return signer(self.signature, _MEANT_FOR + self.document, keys)

    def write(self, path: Path) -> None:
        """Write the document and its signature; the document last, as it is what is looked for.

        Raises:
            OSError: one of them could not be written; both are as they were.
        """
        files = {signature_of(path): self.signature, path: self.document}
        parts = {file: file.with_name(f"{file.name}.part") for file in files}
        for file, data in files.items():
            parts[file].write_bytes(data)
        for file, part in parts.items():
            part.replace(file)


def signature_of(path: Path) -> Path:
    """Return the file of a document's signature."""
    return path.with_name(path.name + SUFFIX)


def sign_faq(path: Path, key: Ed25519PrivateKey, version: int) -> Bundle:
    """Return a FAQ file or folder as a signed version. Raises `SettingsError` if the FAQ is not fit."""
    read_entries(path)
    records = [
        record for content in read_files(path) for record in msgspec.json.decode(content, type=list[msgspec.Raw])
    ]
    document = msgspec.json.encode(_Document(version, records))
    return Bundle.read(document, key.sign(_MEANT_FOR + document), str(path))
