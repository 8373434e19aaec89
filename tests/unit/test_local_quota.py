"""A minute's worth may pass at once, and as much as is earned after it; never more."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.local_quota import LocalQuota

SLACK = 0.01  # requests: a millisecond's worth and less


@given(st.integers(1, 300), st.lists(st.floats(0, 30_000), min_size=1, max_size=300))
def test_as_many_pass_as_the_minutes_worth_and_its_refill_allow(per_minute: int, pauses: list[float]) -> None:
    """Against a bucket that is filled by time, up to a minute's worth. What is off by less than the slack may be either
    way, and goes on as it was."""
    quota, now, left = LocalQuota(), 1e12, float(per_minute)
    for pause in pauses:
        now += pause
        left = min(per_minute, left + pause * per_minute / 60_000)
        if quota.take("a", per_minute, now):
            assert left < 1 + SLACK
        else:
            left -= 1
            assert left > -SLACK


@given(st.integers(1, 300))
def test_the_time_to_wait_is_told(per_minute: int) -> None:
    quota, now = LocalQuota(), 1e12
    for _ in range(per_minute):
        assert quota.take("a", per_minute, now) == 0
    wait_ms = quota.take("a", per_minute, now)
    assert abs(wait_ms - 60_000 / per_minute) < 1
    assert quota.take("a", per_minute, now + wait_ms - 2) > 0
    assert quota.take("a", per_minute, now + wait_ms) == 0


def test_names_do_not_share() -> None:
    quota = LocalQuota()
    assert [quota.take(name, 1, 1e12) == 0 for name in ("a", "b", "a")] == [True, True, False]


@given(st.integers(1, 300), st.floats(0, 1e11))
def test_a_clock_set_back_gives_nothing_and_takes_no_more_than_a_minutes_worth(per_minute: int, back_ms: float) -> None:
    quota, now = LocalQuota(), 1e12
    for _ in range(per_minute):
        assert quota.take("a", per_minute, now) == 0
    now -= back_ms
    wait_ms = quota.take("a", per_minute, now)
    assert abs(wait_ms - 60_000 / per_minute) < 1
    assert quota.take("a", per_minute, now + wait_ms + 1) == 0


def test_it_remembers_so_many_names_and_no_more() -> None:
    quota = LocalQuota(max_names=3)
    for number in range(100):
        quota.take(f"n{number}", 1, 1e12)
    assert len(quota) == 3
    assert quota.take("n99", 1, 1e12) > 0
