"""The shares of a run, the bounds they are held to, and the table that shows them."""

from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from ops.evaluation.judging.judge import Given, judge
from ops.evaluation.judging.questions import Kind, Question
from ops.evaluation.judging.result import Figures, Judged, cells_of, figures_of, parse_bound
from ops.evaluation.judging.retrieval import Hit
from ops.evaluation.table import print_run
from shared.errors import SettingsError
from shared.wire.messages import Language
from shared.wire.outcome import Grounding, Source


def judged(
    text: str,
    *,
    kind: Kind = "paraphrase",
    language: Language = "en",
    source: Source = "model",
    found: Sequence[str] = (),
    question: str = "How long?",
) -> Judged:
    answerable = kind not in {"unanswerable", "small_talk"}
    asked = Question(
        id="q", language=language, kind=kind, split="held_out", question=question,
        entries=("return-period",) if answerable else (), must=(("30 days", "30 天"),) if answerable else (),
    )  # fmt: skip
    entry = Grounding(id="return-period", question="?", answer="30 days, 30 天")
    answer = Given(source=source, text=text, grounding=(entry,))
    hits = tuple(Hit(one, 0.5) for one in found)
    return Judged(question=asked, given=answer, verdict=judge(asked, answer), found=hits)


SOME = [
    judged("30 days", found=("return-period",)),
    judged("40 days", found=("x", "return-period")),
    judged("30 days", source="faq"),
    judged("30 天", language="zh", source="faq", found=("x",)),
    judged("I don't know", kind="unanswerable", source="unsure"),
    judged("Yes", kind="unanswerable"),
    judged("Hello!", kind="small_talk", source="courtesy"),
]


def test_each_share_is_of_the_questions_it_speaks_of() -> None:
    figures = figures_of(SOME)
    assert figures.en_right == 2 / 3
    assert figures.en_right_by_model == 1 / 2
    assert figures.zh_right == 1
    assert figures.invented == 1 / 6
    assert figures.invented_by_model == 1 / 3
    assert figures.unanswerable_right == 1 / 2
    assert figures.small_talk_right == 1
    assert (figures.recall_at_1, figures.recall_at_3) == (1 / 4, 1 / 2)


def test_what_is_right_by_a_hedge_is_never_shown_alone() -> None:
    """In the line of shares, and in the table by kind: both numbers, side by side."""
    some = [*SOME, judged("About “How long?”: 30 days", source="quote")]
    cells = {(cell.kind, cell.language): cell.count for cell in cells_of(some)}
    assert (cells["paraphrase", "en"].right, cells["paraphrase", "en"].right_unhedged) == (3, 2)
    assert (cells["unanswerable", "en"].right, cells["unanswerable", "en"].right_unhedged) == (1, 1), "it admits that"
    shown = StringIO()
    print_run(Console(file=shown, width=200), some, figures_of(some))
    assert "en_right 0.750 · en_right_unhedged 0.500" in shown.getvalue()
    (row,) = [line for line in shown.getvalue().splitlines() if "paraphrase" in line and " en " in line]
    assert row.split()[2:7] == ["4", "3", "75%", "50%", "1"]
    assert "without a hedge" in shown.getvalue()
    names = Figures.__struct_fields__
    for language in ("en", "zh"):
        assert names[names.index(f"{language}_right") + 1] == f"{language}_right_unhedged"


def test_counts_are_by_kind_and_language() -> None:
    cells = {(cell.kind, cell.language): cell.count for cell in cells_of(SOME)}
    assert {place: (count.n, count.right) for place, count in cells.items()} == {
        ("paraphrase", "en"): (3, 2),
        ("paraphrase", "zh"): (1, 1),
        ("small_talk", "en"): (1, 1),
        ("unanswerable", "en"): (2, 1),
    }
    assert cells["paraphrase", "en"].by_source == {"model": 2, "faq": 1}


@pytest.mark.parametrize(
    ("bound", "missed"),
    [
        ("zh_right=1", None),
        ("en_right=0.9", "en_right is 0.667, and ≥ 0.9 is required"),
        ("invented=0.01", "invented is 0.167, and ≤ 0.01 is required"),
        ("invented=0.5", None),
    ],
)
def test_a_bound_is_met_or_missed_in_a_line(bound: str, missed: str | None) -> None:
    assert parse_bound(bound).missed(figures_of(SOME)) == missed


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("right=0.9", "there is no figure 'right'; choose en_right"),
        *(
            (f"en_right={value}", "write a share from 0 to 1")
            for value in ("much", "", "90%", "2", "-0.1", "nan", "inf")
        ),
        ("", "''"),
    ],
)
def test_a_bound_that_says_nothing_is_refused(text: str, said: str) -> None:
    with pytest.raises(SettingsError, match=said):
        parse_bound(text)
