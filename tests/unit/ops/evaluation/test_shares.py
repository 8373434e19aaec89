"""What a shop counts: each share is of the questions it speaks of, with an interval; near misses bound the policy."""

import pytest

from ops.evaluation.decision.calibrating import bounds_of, conformal
from ops.evaluation.decision.corpora import corpora
from ops.evaluation.decision.measuring import claimed_when_there
from ops.evaluation.judging.judge import Given, judge
from ops.evaluation.judging.questions import Kind, Question
from ops.evaluation.judging.result import Judged
from ops.evaluation.judging.shares import keys_of, shares_of
from ops.measure.intervals import wilson
from shared.faq import FaqIndex
from shared.faq.answer_policy import AnswerPolicy
from shared.faq.decision.sureness import Thresholds
from shared.wire.outcome import Grounding, Source

GARDEN = next(corpus for corpus in corpora() if corpus.name == "garden")


def judged(source: Source, *shown: str, kind: Kind = "paraphrase") -> Judged:
    """Return an answer to a question that the entry "returns" answers, or that is near it."""
    answerable = kind in {"paraphrase", "follow_up"}
    question = Question(
        id="q",
        language="en",
        kind=kind,
        split="held_out",
        question="How long?",
        entries=("returns",) if answerable else (),
        near="returns" if kind == "near_miss" else None,
    )
    grounding = tuple(Grounding(id=entry, question="?", answer="30 days") for entry in shown)
    given = Given(source=source, text="30 days" if shown else "I don't know", grounding=grounding)
    return Judged(question=question, given=given, verdict=judge(question, given), found=())


def test_an_answer_claims_and_a_doubt_does_not() -> None:
    some = [
        judged("model", "returns"),
        judged("faq", "warranty"),
        judged("quote", "returns", "warranty"),
        judged("quote", "warranty", "returns"),
        judged("unsure"),
        judged("quote", "returns", kind="follow_up"),
        judged("model", "returns", kind="near_miss"),
        judged("faq", "returns", kind="near_miss"),
        judged("quote", "returns", kind="near_miss"),
        judged("unsure", kind="unanswerable"),
    ]
    shares = shares_of(some, [True, False])
    assert {name: (share.some, share.n) for name, share in shares.items()} == {
        "right_en": (3, 6),
        "answered_right_en": (1, 6),
        "misled_en": (2, 3),
        "right_zh": (0, 0),
        "answered_right_zh": (0, 0),
        "misled_zh": (0, 0),
        "unanswerable_right": (1, 1),
        "shown_when_there": (1, 2),
        "follow_up_right": (1, 1),
    }


def test_each_share_comes_with_its_interval_and_number() -> None:
    keys = keys_of(shares_of([judged("model", "returns")]))
    assert (keys["right_en"], keys["right_en_high"], keys["right_en_n"]) == (1.0, 1.0, 1)
    assert (keys["right_zh"], keys["right_zh_low"], keys["right_zh_n"]) == (None, 0.0, 0)
    assert len(keys) == 4 * 9


def test_an_interval_holds_its_share_and_narrows() -> None:
    low, high = wilson(5, 50)
    wide = wilson(1, 10)
    assert wide[0] < low < 0.1 < high < wide[1]
    assert wilson(0, 0) == (0.0, 1.0)


@pytest.mark.parametrize(("confident", "claims"), [(0.0, True), (9.0, False)])
def test_a_near_miss_with_its_sentence_is_claimed_by_the_policy_in_use(confident: float, claims: bool) -> None:
    near = [question for question in GARDEN.questions if question.tell is not None][:8]
    policy = AnswerPolicy(thresholds=Thresholds(confident=confident, weak=0.0))
    claimed = claimed_when_there(near, GARDEN.entries, policy, None)
    assert len(claimed) == len(near) == 8
    assert any(claimed) is claims


@pytest.mark.parametrize("alpha", [0.02, 0.1, 0.5])
def test_a_conformal_threshold_is_reached_by_few_enough(alpha: float) -> None:
    values = [(at * 37 % 199) / 199 for at in range(199)]
    threshold = conformal(values, alpha)
    assert alpha - 0.01 <= (sum(value >= threshold for value in values) + 1) / 200 <= alpha
    assert conformal(values[:3], 0.1) == float("inf")


def test_a_shop_without_questions_has_its_bounds() -> None:
    bounds = bounds_of(FaqIndex(GARDEN.entries))
    assert bounds.keys() == {"en", "zh"}
    assert all(0 <= bound.sureness <= 1.2 and bound.n > 100 for bound in bounds.values())
