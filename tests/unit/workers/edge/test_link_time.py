"""The time that a link leaves of a deadline."""

from hypothesis import given
from hypothesis import strategies as st

from workers.edge.link_time import ANSWER_MS, LinkTime


def test_a_deadline_is_sent_reduced_by_the_link_and_the_local_answer_time() -> None:
    link = LinkTime()
    for _ in range(200):
        link.add_sample(100.0)
    assert link.left_ms(3_000, 1_000) == 2_000 - 100 - 2 * ANSWER_MS
    link.add_sample(300.0)
    assert link.left_ms(3_000, 1_000) < 2_000 - 100 - 2 * ANSWER_MS


@given(st.lists(st.floats(0, 10_000), max_size=50), st.integers(0, 60_000))
def test_the_centre_never_has_more_time_than_the_edge(trips: list[float], left: int) -> None:
    link = LinkTime()
    for took_ms in trips:
        link.add_sample(took_ms)
    assert link.left_ms(left, 0) <= left - 2 * ANSWER_MS
    assert not trips or min(trips) - 1e-6 <= (link.round_trip_ms or 0) <= max(trips) + 1e-6


def test_a_restored_link_uses_its_own_time_immediately() -> None:
    """Not that of the link before it, which eight more samples would be part of."""
    link = LinkTime()
    for _ in range(100):
        link.add_sample(2_000.0)
    link.restart()
    assert link.left_ms(3_000, 0) < 1_000, "the earlier times hold until a sample is taken"
    link.add_sample(30.0)
    assert link.left_ms(3_000, 0) >= 2_700


def test_each_silence_doubles_the_wait_until_a_sample_ends_it() -> None:
    link = LinkTime()
    assert link.wait_ms == 5_000
    link.add_sample(30.0)
    waits = []
    for _ in range(4):
        waits.append(link.wait_ms)
        link.back_off()
        link.restart()
    assert waits == [1_000, 2_000, 4_000, 5_000], "a link that is back, and slower, is waited for longer"
    link.add_sample(30.0)
    assert link.wait_ms == 1_000


@given(st.lists(st.one_of(st.none(), st.floats(0, 5_000)), max_size=50))
def test_no_silence_changes_what_is_left_of_a_deadline(trips: list[float | None]) -> None:
    """A round trip that was held up by a cut took as long as the cut."""
    link, other = LinkTime(), LinkTime()
    for took_ms in trips:
        if took_ms is None:
            link.back_off()
        else:
            link.add_sample(took_ms)
            other.add_sample(took_ms)
    assert link.left_ms(3_000, 0) == other.left_ms(3_000, 0)
