"""When an edge's FAQ was last in step with its centre's: a file beside the FAQ, which each process reads. Pure but for
the file."""

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
    """The centre confirmed this `version`, of this FAQ file, at that moment by the edge's clock."""

    version: int
    sha256: str
    unix_ms: int

    def write(self, faq: Path) -> None:
        """Write it beside an FAQ file, whole or not at all."""
        part = _beside(faq).with_suffix(".part")
        part.write_bytes(msgspec.json.encode(self))
        part.replace(_beside(faq))

    @classmethod
    def read(cls, faq: Path) -> "InStep | None":
        """Return what stands beside an FAQ file; None where nothing does."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(_beside(faq).read_bytes(), type=InStep)
        return None


@dataclass(slots=True)
class Freshness:
    """The trust in an index that was loaded from a file of this `sha256`. `stale_s` 0: without end."""

    stale_s: float
    sha256: str = ""
    seen: InStep | None = None
    _behind: bool = False

    def note(self, found: InStep | None) -> None:
        """Note what stands beside the file now. Another version is confirmed than the loaded one: this one is stale."""
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
        )  # of a clock that was set back nothing is known

    def told(self, answer: Fallback, now_unix_ms: float) -> Fallback:
        """Return an answer with the version that its entries are of; with a doubt, where they may have changed."""
        if not answer.grounding or self.seen is None:
            return answer
        if not self.is_stale(now_unix_ms):
            return msgspec.structs.replace(answer, faq_version=self.version)
        moment = datetime.fromtimestamp(self.seen.unix_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M")
        text = f"{_TEXT[answer.language].format(moment=moment)}\n\n{answer.text}"
        return msgspec.structs.replace(answer, source="unsure", text=text, faq_version=self.version)


def digest_of(faq: Path) -> str:
    """Return an FAQ file's sha256; empty where it cannot be read, or is a folder."""
    try:
        return hashlib.sha256(faq.read_bytes()).hexdigest()
    except OSError:
        return ""


def _beside(faq: Path) -> Path:
    return faq.with_name(f"{faq.name}.in-step")
