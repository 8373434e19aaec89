"""A paced delta carries its due time through whatever joins it to others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.bench.gateway.paced import DELTA_CHARS, delta_text, lateness_ms

TIMES = st.floats(min_value=0, max_value=1e8)


@given(due_s=TIMES)
def test_a_delta_is_sixty_characters(due_s: float) -> None:
    """As in the gateway's reference measurement."""
    assert len(delta_text(due_s)) == DELTA_CHARS


@given(dues_s=st.lists(TIMES, max_size=5), later_s=st.floats(min_value=0, max_value=10))
def test_joined_deltas_are_each_late_by_their_own_time(dues_s: list[float], later_s: float) -> None:
    """A gateway that merges deltas does not hide how late the first of them is."""
    now_s = max(dues_s, default=0.0) + later_s
    late = lateness_ms("".join(map(delta_text, dues_s)), now_s)
    assert late == pytest.approx([(now_s - due_s) * 1_000 for due_s in dues_s], abs=0.01)
