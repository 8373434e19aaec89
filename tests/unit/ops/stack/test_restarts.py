"""When a process that died by itself is started again, and when no more."""

from hypothesis import given
from hypothesis import strategies as st

from ops.stack.restarts import DEATHS, WITHIN_S, Restarts


def test_each_death_of_a_row_waits_longer_and_the_fifth_is_the_last() -> None:
    restarts = Restarts()
    assert [restarts.died(now_s) for now_s in (0, 2, 5, 9, 15)] == [0.5, 1, 2, 4, None]


@given(st.lists(st.floats(WITHIN_S / (DEATHS - 1), 1e6), max_size=20))
def test_a_process_that_dies_seldom_is_always_started_again(between_s: list[float]) -> None:
    restarts, now_s = Restarts(), 0.0
    for after_s in between_s:
        now_s += after_s + 0.001
        assert restarts.died(now_s) is not None
