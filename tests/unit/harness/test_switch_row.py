"""Which answers the lifecycle's proof counts as begun on the old version after the champion was moved."""

import pytest

from shared.versions.state import Move, State
from shared.wire.outcome import Response, Source, Timings, Usage
from tests.proofs.lifecycle.talk import Answered, last_on_the_old_s


def move(epoch: int, champion: str, unix_ms: int) -> Move:
    return Move(state=State(epoch=epoch, aliases={"champion": champion}), author="a", reason="", unix_ms=unix_ms)


MOVES = [move(1, "one", 0), move(2, "two", 10_000), move(3, "two", 15_000), move(4, "one", 20_000)]
"""Of the third, only what the workers load changes."""


@pytest.mark.parametrize(
    ("asked", "ended", "revision", "source", "found_s"),
    [
        (14_000, 14_100, "one", "model", 4.0),  # by a gateway or worker that follows the registry late
        (19_000, 19_900, "one", "mixed", 9.0),
        (14_000, 14_100, "two", "model", 0.0),
        (9_900, 10_200, "one", "model", 0.0),  # under way at the move
        (19_950, 20_050, "one", "model", 0.0),  # read by a worker after the next move
        (21_000, 21_100, "one", "model", 0.0),
        (14_000, 14_100, None, "busy", 0.0),  # no version's
        (14_000, 14_100, None, "faq", 0.0),
    ],
)
def test_an_answer_counts_if_the_version_before_wrote_it_and_the_next_cannot_have(
    asked: float, ended: float, revision: str | None, source: Source, found_s: float
) -> None:
    response = Response(
        id="r",
        status="completed",
        reason="stop",
        source=source,
        output_text="x",
        usage=Usage(input_tokens=1, output_tokens=1),
        timings=Timings(),
        revision=revision,
    )
    answers = [Answered("visitor", asked, ended, response)]
    assert last_on_the_old_s(MOVES[1], MOVES, answers) == found_s
