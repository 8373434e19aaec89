"""Slots are where programs expect them, and no two share a byte."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.device import ALIGNMENT
from workers.engine.device.slots import SlotLayout, batch_size_for, batch_sizes, slot_capacity

layouts = st.builds(
    SlotLayout,
    layers=st.integers(1, 4),
    slots=st.integers(1, 6),
    heads=st.integers(1, 4),
    capacity=st.integers(1, 30).map(lambda length: slot_capacity(length, 64)),
    dim=st.sampled_from([16, 48, 64, 128]),
    itemsize=st.just(2),
)
BASE = 1 << 40


@given(st.integers(1, 512), st.data())
def test_a_step_gets_the_smallest_batch_size_that_holds_it(slots: int, data: st.DataObject) -> None:
    rows = data.draw(st.integers(1, slots))
    sizes = batch_sizes(slots)
    size = batch_size_for(rows, sizes)
    assert size in sizes
    assert rows <= size < 2 * rows
    assert not any(rows <= other < size for other in sizes)


@given(st.integers(1, 100_000))
def test_a_slot_has_a_place_behind_the_longest_sequence(max_length: int) -> None:
    assert max_length < slot_capacity(max_length, max_length + 8) <= max_length + 8
    assert slot_capacity(max_length, max_length) == max_length


@given(layouts)
def test_caches_of_all_slots_cover_the_array_once_and_begin_where_tensorrt_allows_it(layout: SlotLayout) -> None:
    spans = sorted(address for slot in range(layout.slots) for _, _, address in layout.caches(BASE, slot))
    assert spans == [BASE + n * layout.slot_bytes for n in range(2 * layout.layers * layout.slots)]
    assert layout.num_bytes == len(spans) * layout.slot_bytes
    assert all(address % ALIGNMENT == 0 for address in spans)


@given(layouts, st.data())
def test_a_block_holds_the_tokens_of_one_slot(layout: SlotLayout, data: st.DataObject) -> None:
    """Its rows are where a program that is bound to the slot's caches has these tokens."""
    slot = data.draw(st.integers(0, layout.slots - 1))
    start = data.draw(st.integers(0, layout.capacity - 1))
    count = data.draw(st.integers(1, layout.capacity - start))
    block, extent = layout.block(BASE, slot, start), layout.extent(count)
    rows = [
        block.address + (slice_ * block.rows + row) * block.pitch
        for slice_ in range(extent.slices)
        for row in range(extent.rows)
    ]
    assert rows == [
        address + (head * layout.capacity + start) * layout.token_bytes
        for _, _, address in layout.caches(BASE, slot)
        for head in range(layout.heads)
    ]
    assert extent.width == count * layout.token_bytes <= block.pitch


def test_slots_that_would_begin_elsewhere_are_refused() -> None:
    with pytest.raises(ValueError, match="a slot of 96 bytes in a layer is no multiple of 256"):
        SlotLayout(layers=1, slots=2, heads=1, capacity=3, dim=16, itemsize=2)
