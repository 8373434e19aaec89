"""The ladder's bench counts what a customer had of it: right, and in time."""

from pathlib import Path

import pytest

from ops.evaluation.judging.questions import Question
from ops.lab.client.outcome import Outcome
from ops.lab.load.commands import ladder
from ops.lab.load.ladder import LadderRun, is_right, told
from ops.lab.load.options import LadderOptions
from shared.errors import SettingsError

ASKED = Question(
    id="q", language="en", kind="paraphrase", split="dev", question="How long?", entries=("e",), must=(("30 days",),)
)


@pytest.mark.parametrize(
    ("text", "done_s", "error", "right"),
    [
        ("Within 30 days.", 1.0, None, True),
        ("Within two weeks.", 1.0, None, False),
        ("Within 30 days.", 1.1, None, False),
        ("Within 30 days.", None, None, False),
        ("Within 30 days.", 1.0, "connection_lost", False),
    ],
)
def test_an_answer_counts_that_is_right_and_in_time(
    text: str, done_s: float | None, error: str | None, right: bool
) -> None:
    outcome = Outcome(scheduled_s=0.0, deadline_ms=1_000, done_s=done_s, source="faq", text=text, error=error)
    assert is_right(ASKED, outcome) is right


def test_the_ratio_is_that_of_all_runs_of_a_load() -> None:
    def run(load: float, ladder: bool, right: list[int]) -> LadderRun:
        return LadderRun(load=load, ladder=ladder, rate=1.0, by_lane={}, right_by_model=right, right=right)

    runs = [run(2, False, [1, 0, 0, 0]), run(2, True, [1, 1, 1, 0]), run(3, True, [0, 0]), run(3, False, [0, 0])]
    assert told(runs, 2, "right").startswith("3.00 (")
    assert told(runs, 3, "right") == "nothing right without"


def test_a_folder_without_a_model_is_refused_with_what_to_type(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="holds no model; run: replyline model prepare"):
        ladder(LadderOptions(full=tmp_path))
