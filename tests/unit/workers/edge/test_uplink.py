"""Bodies that an uplink of any speed takes in time."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.edge.uplink import MAX_BODY_BYTES, Uplink

ROUND_TRIP_S = 0.3


def drained(uplink: Uplink, bytes_per_s: float, waiting: int, most: int = 500) -> tuple[int, int, float]:
    """Send over a line of that speed; return how many bodies were taken and failed, and the longest that one took."""
    taken, failed, longest_s = 0, 0, 0.0
    while waiting > 0 and taken + failed < most:
        body = min(waiting, uplink.body_bytes)
        took_s = ROUND_TRIP_S + body / bytes_per_s
        if took_s > uplink.limit_s(body):
            failed += 1
            uplink.failed()
        else:
            taken, waiting, longest_s = taken + 1, waiting - body, max(longest_s, took_s)
            uplink.sent(body, took_s)
    assert waiting <= 0, "it did not drain"
    return taken, failed, longest_s


@pytest.mark.parametrize("kbit_per_s", [8, 64, 256, 1_000, 100_000])
def test_a_new_edge_drains_its_journal_and_holds_up_no_question_for_long(kbit_per_s: int) -> None:
    _, failed, longest_s = drained(Uplink(), kbit_per_s * 125.0, 200_000)
    assert failed == 0
    assert longest_s <= 5.0


def test_a_fast_line_gets_large_bodies() -> None:
    uplink = Uplink()
    drained(uplink, 1e7, 2_000_000)
    assert uplink.body_bytes == MAX_BODY_BYTES


@given(st.lists(st.floats(60.0, 1e7), min_size=1, max_size=6))
def test_a_line_that_changes_speed_is_measured_again(speeds: list[float]) -> None:
    uplink = Uplink()
    for bytes_per_s in speeds:
        drained(uplink, bytes_per_s, 20_000)


def test_a_body_that_failed_is_halved_and_gets_more_time() -> None:
    uplink = Uplink()
    body_bytes, limit_s = uplink.body_bytes, uplink.limit_s(10_000)
    uplink.failed()
    assert uplink.body_bytes == body_bytes // 2
    assert uplink.limit_s(10_000) > limit_s


def test_what_is_being_sent_holds_up_a_question() -> None:
    uplink = Uplink()
    with uplink.sending(4_000):
        assert uplink.busy_s == 4_000 / uplink.bytes_per_s
    assert uplink.busy_s == 0
