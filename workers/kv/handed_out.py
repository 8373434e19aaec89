"""Track what was fetched for prompts and is not in a slot yet: each is counted for as long as somebody holds it."""

from weakref import ref

from workers.engine.kv_pieces import KvPieces


class HandedOut:
    """One thread owns it; the pieces may be let go on any."""

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held: list[tuple[ref[KvPieces], int]] = []

    def add(self, pieces: KvPieces) -> None:
        self._held.append((ref(pieces), pieces.num_bytes))

    def num_bytes(self) -> int:
        """Return the bytes that are still held. What several are views of counts once for each."""
        self._held = [(held, size) for held, size in self._held if held() is not None]
        return sum([size for _, size in self._held])
