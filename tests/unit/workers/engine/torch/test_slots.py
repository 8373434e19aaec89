"""Slots of torch have a place more than sequences, and a step reads at most twice what it needs."""

from hypothesis import given
from hypothesis import strategies as st

from workers.engine.torch.slots import capacity_for, span_of, spans_for

lengths = st.integers(1, 1_048_576)


@given(lengths)
def test_a_slot_has_a_place_for_padding_behind_every_sequence(max_length: int) -> None:
    capacity = capacity_for(max_length)
    assert max_length < capacity <= max_length + 8
    assert capacity % 8 == 0


@given(lengths, st.data())
def test_a_span_holds_what_is_read_and_no_more_than_twice_of_it(max_length: int, data: st.DataObject) -> None:
    spans = spans_for(capacity_for(max_length))
    length = data.draw(st.integers(1, max_length))
    span = span_of(length, spans)
    assert span in spans
    assert length <= span <= max(2 * length, 256)
