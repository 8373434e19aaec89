"""What a join stops is told by the answers that were being written, and by the questions that waited, meanwhile."""

import pytest

from tests.bench.fleet.join import Watched, longest_gaps_s, longest_wait_s


def asked(at_s: float, *deltas_s: float, done_s: float | None = None) -> Watched:
    outcome = Watched(scheduled_s=at_s, deadline_ms=60_000)
    for moment_s in deltas_s:
        outcome.wrote(moment_s)
    outcome.done_s = done_s
    return outcome


@pytest.mark.parametrize(
    ("deltas_s", "done_s", "gaps_s"),
    [
        ((11.0, 12.0, 15.0), 15.5, [3.0]),
        ((1.0, 12.0, 13.0), 13.0, [2.0]),  # the part before the window is not the event's
        ((11.0, 12.0), None, [8.0]),  # and has not gone on when the window ends
        ((1.0, 2.0), 3.0, []),
        ((21.0, 25.0), 26.0, []),
        ((), None, []),
        ((), 15.0, []),
    ],
)
def test_the_longest_gap_of_an_answer_is_counted_in_the_window(
    deltas_s: tuple[float, ...], done_s: float | None, gaps_s: list[float]
) -> None:
    assert longest_gaps_s([asked(0.5, *deltas_s, done_s=done_s)], 10.0, 20.0) == gaps_s


def test_a_question_that_has_no_text_yet_waits_until_the_window_ends() -> None:
    assert longest_wait_s([asked(12.0, 13.0), asked(14.0), asked(1.0, 2.0), asked(25.0)], 10.0, 20.0) == 6.0
    assert longest_wait_s([asked(8.0, 11.0)], 10.0, 20.0) == 3.0
    assert longest_wait_s([], 10.0, 20.0) == 0.0
