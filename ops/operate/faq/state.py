"""What was read of sites, in a hidden file next to the FAQ: each page's last good text, and the learned answers.

A next reading asks the sites only for what has changed, keeps the text of a page that fails, and distinguishes what a
person has changed in the FAQ from what the pages say.
"""

import hashlib
import zlib
from collections.abc import Iterable
from pathlib import Path

import msgspec

from ops.operate.faq.documents import Document
from shared.errors import SettingsError
from shared.faq.entries import FaqEntry

_CORRUPT = "delete it; the sites are then read whole"


class Kept(msgspec.Struct, frozen=True, kw_only=True):
    """A page's last good text.

    Attributes:
        kind: its kind as a file's suffix
        packed: its text or document, compressed
        etag: its `ETag`, to ask whether it has changed
        modified: its `Last-Modified`
        lastmod: the date that the sitemap had
        asked_s: when the site was last asked for it, in Unix seconds
        misses: how many times in a row the site has said that it is gone
    """

    kind: str
    packed: bytes
    etag: str = ""
    modified: str = ""
    lastmod: str = ""
    asked_s: float = 0.0
    misses: int = 0

    @classmethod
    def of(cls, kind: str, content: str | Document, **named: str | float) -> "Kept":
        packed = zlib.compress(msgspec.msgpack.encode(content), 6)
        return msgspec.convert({"kind": kind, "packed": packed, **named}, cls)

    @property
    def content(self) -> str | Document:
        return msgspec.msgpack.decode(zlib.decompress(self.packed), type=str | Document)


class State(msgspec.Struct, kw_only=True):
    """The file's content.

    Attributes:
        sites: the pages of each address that was read, by their addresses
        learned: the digests of each learned text (`text_digest`), by its entry (`key_of`)
        left_out: what gave no entry, each with the reason
        learned_before: `learned` of the FAQ file that this reading replaces
        replaces: the digest of that file. While it is there, this reading has not been written
    """

    sites: dict[str, dict[str, Kept]] = {}
    learned: dict[str, str] = {}
    left_out: list[str] = []
    learned_before: dict[str, str] = {}
    replaces: str = ""

    @classmethod
    def open(cls, faq: Path | None) -> "State":
        """Return the state next to an FAQ file; an empty one if there is no such file. Raises SettingsError."""
        if faq is None or not faq.exists():
            return cls()
        path = _path(faq)
        try:
            state = msgspec.msgpack.decode(path.read_bytes(), type=cls)
            for site in state.sites.values():
                for kept in site.values():
                    _ = kept.content
        except FileNotFoundError:
            return cls()
        except OSError as error:
            raise SettingsError(f"{path}: {error.strerror or error}; change its permissions") from error
        except (msgspec.DecodeError, UnicodeDecodeError, zlib.error) as error:
            raise SettingsError(f"{path}: is damaged; {_CORRUPT}") from error
        if state.replaces == digest(faq.read_bytes()):
            state.learned = state.learned_before
        return state

    def write(self, folder: Path, faq: Path, *, is_same: bool) -> None:
        """Write the state next to an FAQ file, before that file is written; `folder` is one for temporary files.
        `is_same`: the file is as it is to be."""
        self.replaces = digest(faq.read_bytes()) if faq.exists() and not is_same else ""
        new = folder / "state"
        new.write_bytes(msgspec.msgpack.encode(self))
        new.replace(_path(faq))


def key_of(entry: FaqEntry) -> str:
    """Return the name of an entry in one language."""
    return f"{entry.id} {entry.language}"


def text_digest(entry: FaqEntry) -> str:
    """Return the digests of an entry's question and of its answer."""
    return f"{digest(entry.question.encode())} {answer_digest(entry)}"


def answer_digest(entry: FaqEntry) -> str:
    """Return the digest of an entry's answer."""
    return digest(entry.answer.encode())


def learned_of(entries: Iterable[FaqEntry]) -> dict[str, str]:
    """Return `State.learned` of entries."""
    return {key_of(entry): text_digest(entry) for entry in entries}


def digest(data: bytes) -> str:
    """Return a digest that differs for each text."""
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _path(faq: Path) -> Path:
    return faq.with_name(f".{faq.name}.sync")
