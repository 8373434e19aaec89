"""Assign sequences to slots.

Decoding rows fill slots `0 .. num_decoding-1` and prefilling rows the slots after them, so that a decode step is one
contiguous view of the KV arrays (measured: an idle row costs 0.65–1 ms a step, moving 512 tokens once 0.7 ms). The
table returns the KV moves that keep this order; the engine makes them before its next step. An engine that mixes can
compute rows of any slots, so each sequence keeps its slot (`StandingSlots`).
"""

from dataclasses import dataclass
from typing import Any

from numpy.typing import NDArray

from workers.schedule.sequence import Sequence


@dataclass(frozen=True, slots=True)
class Move:
    """Copy the KV of the first `length` tokens from slot `source` to slot `target`."""

    source: int
    target: int
    length: int


@dataclass(frozen=True, slots=True)
class Import:
    """Write `values`, the KV of the tokens from `start`, into `slot`."""

    slot: int
    start: int
    values: NDArray[Any]


@dataclass(frozen=True, slots=True)
class Export:
    """Copy the KV of tokens `start .. stop-1` of an ended sequence, before its slot is reused."""

    sequence: Sequence
    slot: int
    start: int
    stop: int


Transfer = Move | Import | Export


class SlotTable:
    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._rows: list[Sequence] = []
        self._num_decoding = 0

    @property
    def free(self) -> int:
        return self._num_slots - len(self._rows)

    @property
    def open(self) -> list[int]:
        """Return the slots that the next sequence may get."""
        return [len(self._rows)] if self.free else []

    def placed(self) -> list[tuple[int, Sequence]]:
        """Return the sequences with their slots, first the decoding ones, then the prefilling ones."""
        return list(enumerate(self._rows))

    @property
    def decoding(self) -> list[Sequence]:
        return self._rows[: self._num_decoding]

    @property
    def prefilling(self) -> list[Sequence]:
        return self._rows[self._num_decoding :]

    def slot_of(self, sequence: Sequence) -> int:
        return self._rows.index(sequence)

    def assign(self, sequence: Sequence, slot: int) -> None:
        """Assign an open slot to a sequence for prefill."""
        if slot not in self.open:
            raise AssertionError(f"slot {slot} is not free")
        self._rows.append(sequence)

    def promote(self, sequence: Sequence) -> list[Move]:
        """Move a sequence whose prompt is computed to the decoding rows.

        A row that overtook an older prefilling row swaps places with it: with one move if nothing of that row is
        computed, else through a free slot; `may_overtake` says whether that is possible.
        """
        slot, target = self.slot_of(sequence), self._num_decoding
        self._num_decoding += 1
        if slot == target:
            return []
        other, spare = self._rows[target], len(self._rows)
        self._rows[target], self._rows[slot] = sequence, other
        if not other.computed:
            return [Move(slot, target, sequence.computed)]
        if not self.free:
            raise AssertionError("a row overtook another with no slot free to change places")
        return [
            Move(target, spare, other.computed),
            Move(slot, target, sequence.computed),
            Move(spare, slot, other.computed),
        ]

    @property
    def may_overtake(self) -> bool:
        """Return whether a row after the first prefilling one may be computed before it."""
        return self.may_overtake_all(1)

    def may_overtake_all(self, count: int) -> bool:
        """Return whether several rows may be computed before the first `count` prefilling ones."""
        return self.free > 0 or not any(row.computed for row in self.prefilling[:count])

    def release(self, sequence: Sequence) -> list[Move]:
        """Remove a sequence and close the gap, with the last decoding row and then the last prefilling row."""
        slot = self.slot_of(sequence)
        moves: list[Move] = []
        if slot < self._num_decoding:
            self._num_decoding -= 1
            slot = self._fill(slot, self._num_decoding, moves)
        slot = self._fill(slot, len(self._rows) - 1, moves)
        self._rows.pop()
        return moves

    def _fill(self, hole: int, last: int, moves: list[Move]) -> int:
        """Move row `last` into the hole; return the new hole."""
        if hole != last:
            row = self._rows[last]
            self._rows[hole] = row
            if row.computed:
                moves.append(Move(last, hole, row.computed))
        return last


class StandingSlots(SlotTable):
    """A slot table in which sequences are not moved; an ended one's KV stays in its slot until the slot is reused."""

    def __init__(self, num_slots: int) -> None:
        super().__init__(num_slots)
        self._places: dict[Sequence, int] = {}

    @property
    def open(self) -> list[int]:
        taken = {*self._places.values()}
        return [slot for slot in range(self._num_slots) if slot not in taken]

    def placed(self) -> list[tuple[int, Sequence]]:
        return [(self._places[row], row) for row in self._rows]

    def slot_of(self, sequence: Sequence) -> int:
        return self._places[sequence]

    def assign(self, sequence: Sequence, slot: int) -> None:
        super().assign(sequence, slot)
        self._places[sequence] = slot

    def promote(self, sequence: Sequence) -> list[Move]:
        self._rows.remove(sequence)
        self._rows.insert(self._num_decoding, sequence)
        self._num_decoding += 1
        return []

    def release(self, sequence: Sequence) -> list[Move]:
        self._num_decoding -= self._rows.index(sequence) < self._num_decoding
        self._rows.remove(sequence)
        del self._places[sequence]
        return []
