"""What the lifecycle's proof counts: answers begun on the old version after a move, and texts of another history."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from shared.conversation.turn import Turn
from shared.versions.state import Move, State
from shared.wire.messages import ChatRequest, ResponseCreated, ResponseDone
from shared.wire.outcome import Response, Source, Timings, Usage
from tests.chaos.ledger.recorded import Recorded, Times
from tests.chaos.ledger.requests import Breach, Ledger, Question
from tests.chaos.ledger.verdict import judge
from tests.proofs.lifecycle.models import likeliest
from tests.proofs.lifecycle.talk import Answered, OwnTokens, last_on_the_old_s


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


@pytest.mark.parametrize(
    ("logits", "liked", "token"),
    [
        ([0.0, 2.7716908, 2.7716901], 2, 2),  # measured: 7e-7 apart
        ([0.0, 2.7716908, 2.7716901], 1, 1),
        ([0.0, 2.7716908, 2.7716901], 0, 1),
        ([0.0, 2.772, 2.771], 2, 1),
    ],
)
def test_only_at_a_tie_of_two_logits_may_an_answer_take_the_other_token(
    logits: list[float], liked: int, token: int
) -> None:
    assert likeliest(np.array(logits, np.float32), liked) == token


@dataclass(frozen=True)
class Echo:
    """Answers with its name, the questions of the turns before, and the question."""

    name: str

    def says(self, question: str, num_tokens: int, turns: Sequence[Turn] = (), *, like: str = "") -> str:
        return " ".join([self.name, *(turn.user for turn in turns), question])


@pytest.mark.parametrize(
    ("revision", "text", "away", "is_right", "num_short"),
    [
        ("one", "one first second third", (), True, 0),
        ("one", "one first second third", ((0, 50),), True, 0),
        ("one", "one third", ((0, 50),), True, 1),
        ("one", "one second third", ((0, 50),), True, 1),
        ("one", "one third", (), False, 0),
        ("one", "one third", ((90_000, 99_000),), False, 0),
        ("two", "one third", ((0, 50),), False, 0),  # another version's text
        ("one", "one first sec", ((0, 50),), False, 0),  # whole, by its end
    ],
)
def test_only_turns_that_an_outage_of_redis_explains_may_be_missing_from_a_prompt(
    revision: str, text: str, away: tuple[Times, ...], is_right: bool, num_short: int
) -> None:
    ledger, recorded = Ledger(versions=True), Recorded(away=[*away])
    asked = ChatRequest(id="r", session_id="s", input="third", created_unix_ms=20_000, deadline_unix_ms=40_000)
    recorded.add_request(asked)
    recorded.kept["s"] += [
        Turn(request_id=f"r-{text}", user=text, output_text="x", source="model", asked_unix_ms=at)
        for text, at in (("first", 500), ("second", 10_000))
    ]
    ledger.asked(
        Question(
            event_id="e", session="s", text="third", max_output_tokens=9, first_token_ms=1_000, deadline_ms=20_000
        ),
        0.0,
    )
    ledger.heard("s", ResponseCreated(response_id="r", event_id="e", bucket="short"), 0.0)
    response = Response(
        id="r",
        status="completed",
        reason="stop",
        source="model",
        output_text=text,
        usage=Usage(),
        timings=Timings(),
        revision=revision,
    )
    ledger.heard("s", ResponseDone(response=response, cursor="c"), 0.1)
    speakers: Any = {"one": Echo("one"), "two": Echo("two")}
    rights = OwnTokens(speakers, recorded, ledger)
    found = judge(ledger, rights)
    assert (not found.count(Breach.WRONG_TEXT), rights.num_short) == (is_right, num_short)
