"""KV in pieces is what it was in one."""

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from workers.engine.kv_layout import KvPieces


@given(sizes=st.lists(st.integers(1, 7), max_size=6), start=st.integers(0, 45), stop=st.integers(0, 45))
def test_any_stretch_comes_in_order_without_gap_and_uncopied(sizes: list[int], start: int, stop: int) -> None:
    """Each piece with the place of its first token, none of them empty."""
    whole = np.arange(2 * sum(sizes)).reshape(2, 1, 1, -1, 1)
    ends = np.cumsum([0, *sizes])
    arrays = tuple(whole[:, :, :, a:b] for a, b in pairwise(ends))
    kv = KvPieces(arrays)
    assert kv.num_tokens == sum(sizes)
    at = start
    for begin, values in kv.between(start, stop):
        assert begin == at
        assert values.shape[3] > 0
        assert np.array_equal(values, whole[:, :, :, at : at + values.shape[3]])
        assert np.shares_memory(values, whole)
        at += values.shape[3]
    assert at == max(start, min(stop, sum(sizes)))
