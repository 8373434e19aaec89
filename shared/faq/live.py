"""Keep the FAQ's index up to date: check its file twice a second, and replace the index if the file has changed.

A separate thread builds the index: a search sees the old one or the new one. A wrong file is logged once and changes
nothing. A change counts once two checks in a row have seen the same, so that no half-written file is read.
"""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import SettingsError
from shared.faq.entries import PACKAGED_PATH, read_entries
from shared.faq.in_step import Freshness, InStep, digest_of
from shared.faq.index import FaqIndex
from shared.faq.vectors import Embed
from shared.settings import FaqSettings
from shared.telemetry import metrics
from shared.telemetry.logs import get_logger

_POLL_S: Final = 0.5

# Name, time of the last change, size and file number of each file.
Fingerprint = tuple[tuple[str, int, int, int], ...]


class LiveFaq:
    """`index` is replaced, never changed: read it again for each question."""

    def __init__(self, settings: FaqSettings, *, embed: Embed | None = None) -> None:
        """Read the file. Raises SettingsError if it is bad: a process does not start without an FAQ."""
        self._path = PACKAGED_PATH if settings.path is None else settings.path
        self._embed = embed
        # The fingerprint is taken before the file is read, so a change during the read causes another read.
        self._read = self._seen = fingerprint(self._path)
        self.freshness = Freshness(settings.stale_s)
        self.index = self._load()
        self.freshness.note(InStep.read(self._path))

    async def watch(self) -> None:
        """Look at the file for ever."""
        while True:
            await asyncio.sleep(_POLL_S)
            await self.look()

    async def look(self) -> None:
        """Read the file if it has changed since it was read, and not since the last look; and see whether an edge's is
        in step."""
        if self.freshness.stale_s:
            self.freshness.note(InStep.read(self._path))
        now = fingerprint(self._path)
        settled, self._seen = now == self._seen, now
        if now == self._read or not settled:
            return
        self._read = now
        try:
            index = await asyncio.to_thread(self._load)
        except SettingsError as error:
            metrics.faq_reloads.labels("failed").inc()
            get_logger().warning("faq_not_reloaded", cause=str(error), action="the FAQ as it was goes on answering")
            return
        self.index = index
        metrics.faq_reloads.labels("reloaded").inc()
        get_logger().info("faq_reloaded", path=str(self._path), entries=len(index.entries))

    async def vector_of(self, text: str) -> NDArray[np.float32] | None:
        """Return the text's embedding, for `FaqIndex.find`; computed on a thread. None where there are none."""
        return None if self._embed is None else await asyncio.to_thread(self.index.vector_of, text)

    def _load(self) -> FaqIndex:
        digest = digest_of(self._path) if self.freshness.stale_s else ""  # first: later changes are read again
        dropped = Counter[str]()
        index = FaqIndex(read_entries(self._path, dropped), self._embed)
        self.freshness.sha256 = digest
        if dropped:
            characters = ", ".join(f"U+{ord(char[0]):04X} x {number}" for char, number in sorted(dropped.items()))
            get_logger().warning("faq_characters_dropped", path=str(self._path), characters=characters)
        if unasked := index.unasked:
            cause = "their questions have no word in English or Chinese"
            get_logger().warning("faq_entries_not_found", path=str(self._path), entries=unasked, cause=cause)
        return index


def fingerprint(path: Path) -> Fingerprint:
    """Return the fingerprint of a file, or of a folder's `*.json`; empty if the path does not exist."""
    try:
        files = sorted(path.glob("*.json")) if path.is_dir() else [path]
        stats = [(file.name, file.stat()) for file in files]
    except OSError:
        return ()
    return tuple((name, stat.st_mtime_ns, stat.st_size, stat.st_ino) for name, stat in stats)
