"""Track the KV that slots hold, of ended and running sequences, with which a new prompt may begin. Pure.

Within a conversation any common beginning may be used. Between conversations of a tenant only the shop's own text may
(`shared_tokens`), and between tenants nothing: otherwise the time to the first token would reveal what others wrote.
"""

from collections.abc import Iterable
from collections.abc import Sequence as Tokens
from dataclasses import dataclass

from shared.wire.session_key import SessionKey
from workers.schedule.sequence import Sequence


@dataclass(frozen=True, slots=True)
class SlotPrefix:
    """The first `length` tokens of a prompt are in `slot`."""

    slot: int
    length: int


@dataclass(frozen=True, slots=True)
class _Left:
    sequence: Sequence
    token_ids: list[int]


class SlotPrefixes:
    """The KV left in slots. The scheduler reports every slot that is overwritten, and every sequence that ends."""

    def __init__(self) -> None:
        self._left: dict[int, _Left] = {}

    def leave(self, slot: int, sequence: Sequence) -> None:
        """Record that a sequence ended in `slot`; its KV stays there until it is overwritten."""
        token_ids = [*sequence.prompt_ids, *sequence.output_ids][: sequence.computed]
        self.overwrite(slot)
        self._left[slot] = _Left(sequence, token_ids)  # the slot that was idle for longest is first

    def choose(self, sequence: Sequence, slots: Tokens[int]) -> int:
        """Return the best slot for a sequence: its own conversation's, else an empty one, else the one left first."""
        held = [slot for slot in self._left if slot in slots]
        own = [slot for slot in held if self._left[slot].sequence.session == sequence.session]
        if own and sequence.session.session_id:
            return own[-1]
        return next((slot for slot in slots if slot not in self._left), (held or slots)[0])

    def overwrite(self, slot: int) -> None:
        self._left.pop(slot, None)

    def clear(self) -> None:
        """Forget all slots, because their KV may be wrong."""
        self._left.clear()

    def forget(self, session: SessionKey) -> None:
        """Forget an erased conversation."""
        for slot, left in list(self._left.items()):
            if left.sequence.session == session:
                del self._left[slot]

    def standing(self) -> dict[SessionKey, Tokens[int]]:
        """Return the tokens whose KV is still in a slot, by conversation."""
        return {left.sequence.session: left.token_ids for left in self._left.values()}

    def longest(self, sequence: Sequence, slot: int, running: Iterable[tuple[int, Sequence]]) -> SlotPrefix | None:
        """Return the longest beginning of a prompt that a slot holds; on a tie the one in `slot`.

        Args:
            sequence: the sequence with the prompt.
            slot: the slot that it will use.
            running: the running sequences with their slots.
        """
        best: SlotPrefix | None = None
        for place, left in self._left.items():
            length = _usable(sequence, left.sequence, left.token_ids)
            if best is None or (length, place == slot) > (best.length, best.slot == slot):
                best = SlotPrefix(place, length)
        least = best.length if best is not None else 0
        if least < sequence.shared_tokens:
            for place, row in running:
                computed = min(row.computed, len(row.prompt_ids))
                if row is not sequence and computed > least and row.session.tenant == sequence.session.tenant:
                    length = _usable(sequence, row, row.prompt_ids[:computed])
                    if length > least:
                        best, least = SlotPrefix(place, length), length
        return best if best is not None and best.length else None

    def in_place(self, sequence: Sequence, slot: int) -> int:
        """Return how many of a prompt's first tokens `slot` itself holds."""
        left = self._left.get(slot)
        return _usable(sequence, left.sequence, left.token_ids) if left is not None else 0


def _usable(sequence: Sequence, other: Sequence, token_ids: Tokens[int]) -> int:
    if other.session.tenant != sequence.session.tenant:
        return 0
    length = common_length(sequence.prompt_ids, token_ids)
    if sequence.session.session_id and other.session == sequence.session:
        return length
    return min(length, sequence.shared_tokens, other.shared_tokens)


def common_length(ids: Tokens[int], others: Tokens[int]) -> int:
    """Return the length of the common beginning of two token lists."""
    most = min(len(ids), len(others))
    if ids[:most] == others[:most]:
        return most
    return next((place for place in range(most) if ids[place] != others[place]), most)
