"""What a link leaves of a deadline."""

from hypothesis import given
from hypothesis import strategies as st

from workers.edge.link_time import ANSWER_MS, LinkTime


def test_a_deadline_is_sent_less_the_link_and_what_answering_here_takes() -> None:
    link = LinkTime()
    for _ in range(200):
        link.note(100.0)
    assert link.left_ms(3_000, 1_000) == 2_000 - 100 - 2 * ANSWER_MS
    link.note(300.0)
    assert link.left_ms(3_000, 1_000) < 2_000 - 100 - 2 * ANSWER_MS


@given(st.lists(st.floats(0, 10_000), max_size=50), st.integers(0, 60_000))
def test_the_centre_never_has_more_time_than_the_edge(trips: list[float], left: int) -> None:
    link = LinkTime()
    for took_ms in trips:
        link.note(took_ms)
    assert link.left_ms(left, 0) <= left - 2 * ANSWER_MS
    assert not trips or min(trips) - 1e-6 <= (link.round_trip_ms or 0) <= max(trips) + 1e-6
