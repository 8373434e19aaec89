"""Clocks that disagree are noticed where it shows, and told once a minute."""

from hypothesis import given
from hypothesis import strategies as st

from workers.skew import SkewReport, SkewWatch, skew_ms

NOW = 1_790_000_000_000.0
MINUTE = 60_000


def test_what_was_created_after_now_is_ahead_by_the_difference() -> None:
    assert skew_ms(int(NOW) + 5 * MINUTE, NOW, None) == 5 * MINUTE


def test_what_was_created_before_the_broker_had_it_is_behind_by_the_difference() -> None:
    assert skew_ms(int(NOW) - 6 * MINUTE, NOW, int(NOW) - MINUTE) == -5 * MINUTE


def test_without_the_brokers_clock_a_record_that_waited_is_no_skew() -> None:
    assert skew_ms(int(NOW) - 5 * MINUTE, NOW, None) == 0


@given(st.integers(0, 2**43), st.integers(0, 2**43), st.integers(0, 10**7))
def test_clocks_that_agree_never_show_a_skew(created: int, on_the_way: int, waited: int) -> None:
    """Created, then taken in at once, then read: however long it lay."""
    arrived = created
    assert skew_ms(created, arrived + waited + on_the_way, arrived) == 0


def test_up_to_a_second_is_nothing() -> None:
    watch = SkewWatch()
    assert [watch.notice(skew, NOW) for skew in (0, 1_000, -1_000)] == [None] * 3
    assert watch.notice(1_001, NOW) == SkewReport(1, 1_001)


def test_it_is_told_at_once_and_then_together_once_a_minute() -> None:
    watch = SkewWatch()
    assert watch.notice(2_000, NOW) == SkewReport(1, 2_000)
    assert watch.notice(300_000, NOW + 1) is None
    assert watch.notice(-400_000, NOW + MINUTE - 1) is None
    assert watch.notice(2_000, NOW + MINUTE) == SkewReport(3, -400_000)
    assert watch.notice(2_000, NOW + 2 * MINUTE) == SkewReport(1, 2_000)
