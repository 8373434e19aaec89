"""The erasures that this gateway has read, by their offsets, for edges that ask what they missed. Pure."""

from collections import deque
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from shared.wire.fields import Count, Identifier
from shared.wire.messages import Erase

_KEPT: Final = 10_000


class Erased(Struct, frozen=True):
    """A conversation that was erased."""

    session_id: Identifier
    generation: Count


class Missed(Struct, frozen=True):
    """The erasures of a tenant from some offset on; `next` is where to ask on from. `gap`: some before were not kept
    here, so any conversation may have been erased."""

    next: Count
    gap: bool = False
    erased: tuple[Erased, ...] = ()


@dataclass(slots=True)
class ErasureLog:
    """`begin` is the first offset that is known here, `next` the one behind the last."""

    begin: int = 0
    next: int = 0
    _known: deque[tuple[int, Erase]] = field(default_factory=deque)

    def begin_at(self, offset: int) -> None:
        """Note where this gateway's reading begins."""
        self.begin = self.next = offset

    def add(self, erase: Erase, offset: int) -> None:
        """Add the erasure at an offset. One before the last's begins anew: the topic has been made again."""
        if offset < self.next:
            self._known.clear()
            self.begin = offset
        self._known.append((offset, erase))
        self.next = offset + 1
        if len(self._known) > _KEPT:
            self.begin = self._known.popleft()[0] + 1

    def since(self, offset: int | None, tenant: str) -> Missed:
        """Return a tenant's erasures from that offset on; None: of one that asks for the first time."""
        if offset is None:
            return Missed(self.next)
        if not self.begin <= offset <= self.next:
            return Missed(self.next, gap=True)
        erased = [
            Erased(each.session_id, each.generation)
            for at, each in self._known
            if at >= offset and each.tenant == tenant
        ]
        return Missed(self.next, erased=tuple(erased))
