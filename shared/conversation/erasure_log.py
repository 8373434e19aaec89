"""Keep recent erasures of conversations in memory, with their offsets in Kafka. Pure.

An edge that was disconnected asks the centre for the erasures since an offset. The centre also checks each answer that
an edge sends against this log, because Redis, which stores a mark for each erasure, may have lost some. The log covers
the longest time that an edge may be disconnected.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct

from shared.conversation.erasures import LONGEST_OUTAGE_S
from shared.wire.fields import Count, Identifier
from shared.wire.messages import Erase
from shared.wire.session_key import SessionKey

MAX_ERASURES: Final = 300_000
"""Of more conversations the longest erased are dropped, and no turn that was asked before then is taken."""
_PAGE: Final = 500


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
    """`begin` is the first offset that is known here, `next` the one behind the last. `whole`: what was written before
    this process began to read has been loaded."""

    begin: int = 0
    next: int = 0
    whole: bool = False
    max_erasures: int = MAX_ERASURES
    _dropped_unix_ms: float = 0.0
    _known: OrderedDict[SessionKey, tuple[int, int]] = field(default_factory=OrderedDict)

    def begin_at(self, offset: int) -> None:
        """Note where this gateway's reading begins."""
        self.begin = self.next = offset

    def load(self, earlier: Iterable[tuple[int, Erase]], begin: int) -> None:
        """Add the erasures that were written before this gateway began to read, from the offset `begin` on."""
        later, self._known, self.begin = self._known, OrderedDict(), begin
        for offset, erase in earlier:
            self._put(SessionKey(erase.tenant, erase.session_id), offset, erase.generation)
        for key, (offset, generation) in later.items():
            self._put(key, offset, generation)
        self.whole = True

    def add(self, erase: Erase, offset: int) -> None:
        """Add the erasure at an offset. An offset before the last one means that the topic was created again: the
        earlier offsets are dropped, the erasures are kept."""
        if offset < self.next:
            self.begin = offset
            self._known = OrderedDict((key, (-1, generation)) for key, (_, generation) in self._known.items())
        self._put(SessionKey(erase.tenant, erase.session_id), offset, erase.generation)
        self.next = offset + 1

    def _put(self, key: SessionKey, offset: int, generation: int) -> None:
        """Put a conversation's last erasure behind all others."""
        self._known[key] = offset, max(generation, self._known.pop(key, (0, 0))[1])
        if len(self._known) > self.max_erasures:
            _, (dropped, erased_unix_ms) = self._known.popitem(last=False)
            self.begin = max(self.begin, dropped + 1)
            self._dropped_unix_ms = max(self._dropped_unix_ms, erased_unix_ms)

    def since(self, offset: int | None, tenant: str) -> Missed:
        """Return a tenant's erasures from that offset on, as many as one page has; None: from the first that is known,
        for an edge that asks for the first time."""
        if offset is None:
            offset = self.begin
        if not self.begin <= offset <= self.next:
            return Missed(self.next, gap=True)
        missed: list[tuple[int, Erased]] = []
        for key, (at, generation) in reversed(self._known.items()):
            if at < offset:
                break
            if key.tenant == tenant:
                missed.append((at, Erased(key.session_id, generation)))
        page = missed[: -_PAGE - 1 : -1]
        is_last = len(page) == len(missed)
        return Missed(self.next if is_last else page[-1][0] + 1, erased=tuple(erased for _, erased in page))

    def generation(self, key: SessionKey) -> int:
        """Return the generation that the conversation's last erasure began; 0 if none is known."""
        return self._known.get(key, (0, 0))[1]

    def covers(self, asked_unix_ms: float, now_unix_ms: float) -> bool:
        """Return whether every erasure since that moment is known here."""
        return asked_unix_ms > max(now_unix_ms - LONGEST_OUTAGE_S * 1_000, self._dropped_unix_ms)
