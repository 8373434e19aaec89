"""Slots stay compact, and the moves keep every sequence's KV in the slot that the table names."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from tests.support.builders.worker import sequence
from workers.schedule.sequence import Sequence
from workers.schedule.slots import Move, SlotTable, StandingSlots


def table(num_slots: int, *, decoding: int, prefilling: int) -> tuple[SlotTable, list[Sequence]]:
    slots = SlotTable(num_slots)
    rows = [sequence(f"s{number}", computed=3) for number in range(decoding + prefilling)]
    for row in rows:
        slots.assign(row, slots.open[0])
    for row in rows[:decoding]:
        assert slots.promote(row) == []
    return slots, rows


def test_a_row_that_overtook_changes_places_by_way_of_a_free_slot() -> None:
    slots, (older, newer) = table(3, decoding=0, prefilling=2)
    assert slots.may_overtake
    assert slots.promote(newer) == [Move(0, 2, 3), Move(1, 0, 3), Move(2, 1, 3)]
    assert (slots.decoding, slots.prefilling) == ([newer], [older])


def test_without_a_free_slot_none_may_overtake() -> None:
    slots, (_, newer) = table(2, decoding=0, prefilling=2)
    assert not slots.may_overtake
    with pytest.raises(AssertionError, match=r"^slot 2 is not free$"):
        slots.assign(sequence("more"), 2)
    with pytest.raises(AssertionError, match=r"^a row overtook another with no slot free to change places$"):
        slots.promote(newer)


def test_a_row_of_which_nothing_is_computed_is_overtaken_by_one_move_without_a_free_slot() -> None:
    slots, rows = SlotTable(2), [sequence("a", computed=0), sequence("b", computed=3)]
    for slot, row in enumerate(rows):
        slots.assign(row, slot)
    assert slots.may_overtake
    assert slots.may_overtake_all(1)
    assert not slots.may_overtake_all(2)
    assert slots.promote(rows[1]) == [Move(1, 0, 3)]
    assert (slots.decoding, slots.prefilling) == ([rows[1]], [rows[0]])


def test_a_decoding_row_that_ends_is_replaced_by_the_last_of_each_kind() -> None:
    slots, rows = table(5, decoding=3, prefilling=2)
    assert slots.release(rows[0]) == [Move(2, 0, 3), Move(4, 2, 3)]
    assert (slots.decoding, slots.prefilling) == ([rows[2], rows[1]], [rows[4], rows[3]])


class Slots(RuleBasedStateMachine):
    """`memory[slot][position]` names the conversation whose KV is really at that position after the moves so far."""

    kind = SlotTable

    @initialize(num_slots=st.integers(1, 6))
    def start(self, num_slots: int) -> None:
        self.slots = self.kind(num_slots)
        self.memory: list[dict[int, tuple[str, int]]] = [{} for _ in range(num_slots)]
        self.number = 0

    def carry_out(self, moves: list[Move]) -> None:
        for move in moves:
            for position in range(move.length):
                self.memory[move.target][position] = self.memory[move.source][position]

    @precondition(lambda self: self.slots.free)
    @rule(data=st.data())
    def take(self, data: st.DataObject) -> None:
        self.number += 1
        row = sequence(f"s{self.number}")
        self.slots.assign(row, data.draw(st.sampled_from(self.slots.open)))

    @precondition(lambda self: self.slots.placed())
    @rule(data=st.data(), tokens=st.integers(1, 4))
    def compute(self, data: st.DataObject, tokens: int) -> None:
        row = data.draw(st.sampled_from([*self.slots.decoding, *self.slots.prefilling]))
        for _ in range(tokens):
            self.memory[self.slots.slot_of(row)][row.computed] = (row.request_id, row.computed)
            row.computed += 1

    @precondition(lambda self: self.slots.prefilling)
    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        rows = self.slots.prefilling if self.slots.may_overtake else self.slots.prefilling[:1]
        row = data.draw(st.sampled_from(rows))
        self.carry_out(self.slots.promote(row))
        assert self.slots.decoding[-1] is row

    @precondition(lambda self: self.slots.placed())
    @rule(data=st.data())
    def release(self, data: st.DataObject) -> None:
        row = data.draw(st.sampled_from([*self.slots.decoding, *self.slots.prefilling]))
        self.carry_out(self.slots.release(row))
        assert row not in self.slots.decoding + self.slots.prefilling

    @invariant()
    def every_sequence_finds_its_own_kv(self) -> None:
        rows = [*self.slots.decoding, *self.slots.prefilling]
        slots = [self.slots.slot_of(row) for row in rows]
        assert self.slots.placed() == list(zip(slots, rows, strict=True))
        assert len(set(slots)) + self.slots.free == len(self.memory)
        assert self.kind is StandingSlots or slots == list(range(len(rows)))
        for slot, row in zip(slots, rows, strict=True):
            stored = [self.memory[slot].get(position) for position in range(row.computed)]
            assert stored == [(row.request_id, position) for position in range(row.computed)]


class Standing(Slots):
    """Of an engine that computes rows of any slots: nothing is moved."""

    kind = StandingSlots

    def carry_out(self, moves: list[Move]) -> None:
        assert not moves


TestSlots = Slots.TestCase
TestStandingSlots = Standing.TestCase
