"""A minute's worth may pass immediately, and later as much as is refilled; never more."""

from hypothesis import given
from hypothesis import strategies as st

from gateway.access.charges import Charge, LocalQuota

SLACK = 0.01  # requests: a millisecond's worth and less
BEGAN_MS = 1e9  # of a monotonic clock


def wait_ms(quota: LocalQuota, name: str, per_minute: int, now_ms: float, *, units: int = 1) -> float:
    """Return 0 if the units are available."""
    overdrawn = quota.charge([Charge("subject", name, units, per_minute)], now_ms)
    return 0.0 if overdrawn is None else overdrawn.wait_ms


@given(st.integers(1, 300), st.lists(st.floats(0, 30_000), min_size=1, max_size=300))
def test_as_many_requests_pass_as_the_minutes_worth_and_its_refill_allow(per_minute: int, pauses: list[float]) -> None:
    """Compared with a bucket filled by time, up to a minute's worth. Differences below the slack may go either way."""
    quota, now, left = LocalQuota(), BEGAN_MS, float(per_minute)
    for pause in pauses:
        now += pause
        left = min(per_minute, left + pause * per_minute / 60_000)
        if wait_ms(quota, "a", per_minute, now):
            assert left < 1 + SLACK
        else:
            left -= 1
            assert left > -SLACK


@given(st.integers(1, 300))
def test_the_time_to_wait_is_returned(per_minute: int) -> None:
    quota, now = LocalQuota(), BEGAN_MS
    for _ in range(per_minute):
        assert wait_ms(quota, "a", per_minute, now) == 0
    told_ms = wait_ms(quota, "a", per_minute, now)
    assert abs(told_ms - 60_000 / per_minute) < 1
    assert wait_ms(quota, "a", per_minute, now + told_ms - 2) > 0
    assert wait_ms(quota, "a", per_minute, now + told_ms) == 0


def test_the_number_of_remembered_names_is_bounded() -> None:
    quota = LocalQuota(max_names=3)
    for number in range(100):
        wait_ms(quota, f"n{number}", 1, BEGAN_MS)
    assert len(quota) == 3
    assert wait_ms(quota, "n99", 1, BEGAN_MS) > 0


@given(st.integers(1, 60), st.integers(1, 200))
def test_a_request_of_higher_cost_passes_less_often(units: int, per_minute: int) -> None:
    quota = LocalQuota()
    had = sum(wait_ms(quota, "a", per_minute, BEGAN_MS, units=units) == 0 for _ in range(300))
    assert had == per_minute // units


def test_several_charges_are_made_together_or_not_at_all() -> None:
    quota, much, little = LocalQuota(), Charge("tenant", "t", 1, 10), Charge("subject", "s", 1, 2)
    assert [quota.charge([much, little], BEGAN_MS) is None for _ in range(5)] == [True, True, False, False, False]
    assert sum(quota.charge([much], BEGAN_MS) is None for _ in range(20)) == 8
    overdrawn = quota.charge([much, little], BEGAN_MS)
    assert overdrawn is not None
    assert overdrawn.charge is much


def test_payers_are_distinguished_by_name_and_tenant() -> None:
    for named in (("a", "x"), ("b", "x")), (("a", "x"), ("a", "y")):
        quota = LocalQuota()
        charges = [(tenant, Charge("subject", name, 1, 1)) for tenant, name in (*named, named[0])]
        taken = [quota.charge([charge], BEGAN_MS, tenant=tenant) is None for tenant, charge in charges]
        assert taken == [True, True, False]
