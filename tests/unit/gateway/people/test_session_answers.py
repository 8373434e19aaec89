"""A session's recent answers: which may be rated, how they count, and how many were fallbacks."""

from collections import Counter, OrderedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.people.session_answers import Rated, SessionAnswers, verdict_of
from shared.errors import ProtocolError
from shared.wire.messages import Feedback
from shared.wire.outcome import Grounding, Source, Status
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import answer

SESSION = SessionKey("t", "s")


@pytest.mark.parametrize(
    ("feedback", "verdict"),
    [
        (Feedback(response_id="r", rating="up"), "resolved"),
        (Feedback(response_id="r", rating="down"), "unresolved"),
        (Feedback(response_id="r", resolved=True), "resolved"),
        (Feedback(response_id="r", resolved=False), "unresolved"),
        (Feedback(response_id="r", rating="down", resolved=True), "resolved"),
        (Feedback(response_id="r", rating="up", resolved=False), "unresolved"),
        (Feedback(response_id="r", reason="wrong"), None),
    ],
)
def test_a_customers_stated_outcome_counts_before_the_rating(feedback: Feedback, verdict: str | None) -> None:
    assert verdict_of(feedback) == verdict


def test_the_last_rating_of_an_answer_counts() -> None:
    answers = SessionAnswers()
    answers.answered(SESSION, answer("r", source="faq"))
    up, down = Feedback(response_id="r", rating="up"), Feedback(response_id="r", rating="down", reason="wrong")
    assert answers.rate(SESSION, up) == Rated("faq", "resolved", None, None)
    assert answers.rate(SESSION, up) == Rated("faq", "resolved", "resolved", None)
    assert answers.rate(SESSION, down) == Rated("faq", "unresolved", "resolved", "wrong")
    assert answers.rate(SESSION, down) == Rated("faq", "unresolved", "unresolved", None)


@pytest.mark.parametrize(("tenant", "session", "name"), [("t", "s", "x"), ("t", "other", "r"), ("other", "s", "r")])
def test_only_the_sessions_own_answers_can_be_rated(tenant: str, session: str, name: str) -> None:
    answers = SessionAnswers()
    answers.answered(SESSION, answer("r"))
    with pytest.raises(ProtocolError) as caught:
        answers.rate(SessionKey(tenant, session), Feedback(response_id=name, rating="up"))
    assert (caught.value.code, caught.value.param) == ("unknown_response", "response_id")
    with pytest.raises(ProtocolError, match="needs a rating"):
        answers.rate(SESSION, Feedback(response_id="r", reason="other"))


STOOD_IN = True


def test_unhelpful_answers_are_counted_in_a_row_and_a_helpful_one_ends_it() -> None:
    """Unhelpful: a fallback, or an answer that nothing is known. An FAQ entry chosen by a worker helps; a greeting is
    neutral.
    """
    answers = SessionAnswers()
    ends: list[tuple[Source, Status, bool]] = [
        ("faq", "completed", STOOD_IN),
        ("model", "completed", False),
        ("busy", "completed", STOOD_IN),
        ("model", "cancelled", False),
        ("model", "failed", False),
        ("courtesy", "completed", False),
        ("faq", "completed", STOOD_IN),
        ("model", "incomplete", False),
        ("unsure", "completed", False),
        ("unsure", "completed", False),
        ("faq", "completed", False),
        ("faq", "completed", STOOD_IN),
        ("mixed", "completed", False),
        ("faq", "completed", STOOD_IN),
        ("handoff", "completed", False),
    ]
    row = [
        answers.answered(SESSION, answer(str(n), source=source, status=status), stood_in=stood_in).fallbacks
        for n, (source, status, stood_in) in enumerate(ends)
    ]
    assert row == [1, 0, 1, 1, 1, 1, 2, 0, 1, 2, 0, 1, 0, 1, 0]


def test_a_possibly_helpful_answer_neither_counts_nor_ends_the_row() -> None:
    answers = SessionAnswers()
    entry = (Grounding(id="g", question="q", answer="a"),)
    kinds: list[tuple[Source, tuple[Grounding, ...]]] = [
        *(("unsure", ()), ("quote", entry), ("clarify", entry), ("unsure", entry), ("unsure", ()))
    ]
    row = [
        answers.answered(SESSION, answer(str(n), source=source, grounding=grounding)).fallbacks
        for n, (source, grounding) in enumerate(kinds)
    ]
    assert row == [1, 1, 1, 1, 2]


def test_an_answer_that_ends_again_is_no_second_fallback_and_an_asked_person_ends_the_row() -> None:
    answers = SessionAnswers()
    row = [answers.answered(SESSION, answer(name, source="unsure")).fallbacks for name in "aab"]
    assert row == [1, 1, 2]
    answers.handed_over(SESSION)
    assert answers.answered(SESSION, answer("c", source="unsure")).fallbacks == 1


def test_an_erased_conversation_is_unknown() -> None:
    answers = SessionAnswers()
    assert answers.answered(SESSION, answer("a")).first
    assert not answers.answered(SESSION, answer("b")).first
    assert answers.response_ids(SESSION) == ("a", "b")
    for _ in range(2):  # not only once, if it is known here at all
        answers.forget(SESSION)
    assert answers.response_ids(SESSION) == ()
    assert len(answers) == 0
    assert answers.answered(SESSION, answer("c")).first


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 30))), st.integers(4, 12), st.integers(1, 4))
def test_the_number_of_remembered_answers_is_bounded_and_the_last_stay(
    ends: list[tuple[str, int]], most: int, of_a_session: int
) -> None:
    """Against a plain model: sessions by their last answer, each with its last ones."""
    answers = SessionAnswers(max_answers=most, max_of_a_session=of_a_session)
    model: OrderedDict[str, list[str]] = OrderedDict()
    for session, number in ends:
        answers.answered(SessionKey("t", session), answer(str(number)))
        held = model.setdefault(session, [])
        model.move_to_end(session)
        if str(number) not in held:
            held.append(str(number))
        del held[:-of_a_session]
        while sum(map(len, model.values())) > most:
            model.popitem(last=False)
        assert len(answers) == sum(map(len, model.values())) <= most
        assert Counter({name: len(answers.response_ids(SessionKey("t", name))) for name in "abcdef"}) == Counter(
            {name: len(model.get(name, [])) for name in "abcdef"}
        )
    assert {name: answers.response_ids(SessionKey("t", name)) for name in model} == {
        k: tuple(v) for k, v in model.items()
    }
