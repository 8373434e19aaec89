"""Record when the centre last confirmed that an edge's copy of the FAQ is the current one. The edge's processes read
this time from a small file next to the FAQ, and mark the FAQ as possibly outdated if the last confirmation is too old.
"""

import hashlib
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from shared.faq.fallback import Fallback
from shared.wire.messages import Language

_TEXT: Final[dict[Language, str]] = {
    "en": "I could not check since {moment} UTC whether this still holds:",
    "zh": "自 {moment}（UTC）起无法核实以下内容是否仍然有效：",
}


class InStep(msgspec.Struct, frozen=True):
    """The centre's confirmation that this FAQ file is its `version`. `unix_ms` is the time of the confirmation by the
    edge's clock."""

    version: int
    sha256: str
    unix_ms: int

    def write(self, faq: Path) -> None:
        """Write the confirmation to a file next to the FAQ file. The file is replaced atomically."""
        part = _beside(faq).with_suffix(".part")
        part.write_bytes(msgspec.json.encode(self))
        part.replace(_beside(faq))

    @classmethod
    def read(cls, faq: Path) -> "InStep | None":
        """Read the confirmation next to an FAQ file; return None if the file is missing or damaged."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(_beside(faq).read_bytes(), type=InStep)
        return None


@dataclass(slots=True)
class Freshness:
    """Whether an FAQ index may be out of date. The index was loaded from a file with this `sha256`. It is stale if the
    last confirmation is older than `stale_s` seconds; 0 means that it never becomes stale."""

    stale_s: float
    sha256: str = ""
    seen: InStep | None = None
    _behind: bool = False

    def note(self, found: InStep | None) -> None:
        """Store the confirmation that was read last. If it is for another version than the loaded one, the loaded one
        is stale."""
        if found is None:
            return
        self._behind = found.sha256 != self.sha256
        if not self._behind:
            self.seen = found

    @property
    def version(self) -> int | None:
        return None if self.seen is None else self.seen.version

    def is_stale(self, now_unix_ms: float) -> bool:
        if not self.stale_s:
            return False
        if self._behind or self.seen is None:
            return True
        return (
            abs(now_unix_ms - self.seen.unix_ms) > self.stale_s * 1_000
        )  # abs: a clock that was set back proves nothing

    def told(self, answer: Fallback, now_unix_ms: float) -> Fallback:
        """Return the answer with the FAQ version that its entries are from. If the index is stale, the text begins with
        a note that the content could not be checked."""
        if not answer.grounding or self.seen is None:
            return answer
        if not self.is_stale(now_unix_ms):
            return msgspec.structs.replace(answer, faq_version=self.version)
        moment = datetime.fromtimestamp(self.seen.unix_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
        text = f"{_TEXT[answer.language].format(moment=moment)}\n\n{answer.text}"
        return msgspec.structs.replace(answer, source="unsure", text=text, faq_version=self.version)


def digest_of(faq: Path) -> str:
    """Return an FAQ file's sha256; empty if it cannot be read or is a folder."""
    try:
        return hashlib.sha256(faq.read_bytes()).hexdigest()
    except OSError:
        return ""


def _beside(faq: Path) -> Path:
    return faq.with_name(f"{faq.name}.in-step")
