"""A follow-up question is searched together with the previous turn; a self-contained one is not."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.conversation.turn import Turn
from shared.faq import FaqEntry, FaqIndex
from shared.faq.follow_up import Lean, content_words, lean_of, with_previous
from shared.faq.terms import TermExtractor
from tests.support.samples.faq_questions import CHINESE_QUESTIONS, ENGLISH_QUESTIONS

INDEX = FaqIndex.load()
QUESTIONS = ENGLISH_QUESTIONS + CHINESE_QUESTIONS


def after(*users: str) -> tuple[Turn, ...]:
    """Return the turns of these questions, each answered from the entry it finds after the earlier ones."""
    turns: list[Turn] = []
    for user in users:
        hits = INDEX.search(user, k=1, previous=turns)
        grounding = tuple(hit.entry.as_grounding() for hit in hits)
        turns.append(Turn(request_id=user[:8], user=user, output_text="…", source="model", grounding=grounding))
    return tuple(turns)


def found(question: str, *before: str, k: int = 3) -> list[str]:
    return [hit.entry.id for hit in INDEX.search(question, k=k, previous=after(*before))]


@pytest.mark.parametrize(
    ("before", "question", "wanted"),
    [
        ("How does a gift card work?", "and how long is it valid?", "gift-card-use"),
        ("Can I pay in instalments?", "is there interest on that", "payment-instalments"),
        ("When do I get my money back?", "And how long does that take?", "refund-time"),
        ("which size of the AX-3391-B should I take", "can it go in the dryer?", "product-care-ax-3391-b"),
        ("Do you deliver furniture?", "and do you carry it upstairs?", "delivery-bulky"),
        ("tell me about the backpack BP-5520-K", "does a laptop fit into it", "product-laptop-bp-5520-k"),
        ("How do I charge the lantern LN-7715-G?", "which cable does it need?", "product-charging-ln-7715-g"),
        ("I want to return an item from the sale", "why?", "return-final-sale"),
        ("How long does a refund take?", "what about an exchange?", "return-exchange"),
        ("雨衣 AX-3391-B 怎么选尺码", "那能烘干吗", "product-care-ax-3391-b"),
        ("礼品卡怎么用", "那有效期呢", "gift-card-use"),
        ("可以分期付款吗", "要利息吗", "payment-instalments"),
        ("家具怎么配送", "那运费呢", "delivery-bulky"),
    ],
)
def test_a_follow_up_is_found_with_the_question_before(before: str, question: str, wanted: str) -> None:
    assert wanted in found(question, before, k=2)


BIKES = [
    FaqEntry(id=name, topic="t", language="en", question=question, alternatives=(), answer=answer)
    for name, question, answer in (
        ("service", "How much does a bike service cost?", "A basic service costs €49 and takes 2 working days."),
        ("insure", "Can I insure my new bike against theft?", "Yes, for €6.50 a month, for bikes up to €5000."),
        ("deliver", "Do you deliver bikes?", "We deliver bikes in Denmark, Sweden and Finland for €59."),
        ("loan", "Can I pay for a bike later?", "You pay in 12 parts; you can end it early without a fee."),
        ("savings", "When can I take out what I paid early?", "What you paid early is paid out at any time."),
    )
]


@pytest.mark.parametrize(
    ("answered", "question", "wanted"),
    [
        ("insure", "what does that cost a month?", "insure"),
        ("loan", "can I pay it early?", "loan"),
        ("insure", "do you deliver it to Sweden?", "deliver"),
        ("deliver", "what does a service cost?", "service"),
    ],
)
def test_a_question_that_refers_back_is_answered_by_the_entry_before_if_that_may_answer_it(
    answered: str, question: str, wanted: str
) -> None:
    last = next(entry for entry in BIKES if entry.id == answered)
    turn = Turn(request_id="1", user="?", output_text="…", source="faq", grounding=(last.as_grounding(),))
    assert FaqIndex(BIKES).search(question, previous=[turn])[0].entry.id == wanted


@pytest.mark.parametrize(("name", "is_topic"), [("resp_1", False), ("person_7", True)])
def test_a_question_leans_on_no_wish_for_a_person_but_on_a_persons_words(name: str, is_topic: bool) -> None:
    topic = Turn(request_id="1", user="Do you deliver bikes?", output_text="…", source="faq")
    asked = "How do I get my savings?" if is_topic else "I want to talk to a person"
    turn = Turn(request_id=name, user=asked, output_text="…", source="handoff")
    found = FaqIndex(BIKES).search("and to Sweden?", previous=[topic, turn])
    without = FaqIndex(BIKES).search("and to Sweden?", previous=[topic])
    assert ([hit.score for hit in found] == [hit.score for hit in without]) is not is_topic


def test_a_follow_up_alone_finds_another_entry() -> None:
    """So the previous turn led to the entry."""
    assert "product-care-ax-3391-b" not in found("why?")
    assert found("why?", "How do I wash the jacket AX-3391-B?")[0] == "product-care-ax-3391-b"


def test_a_chain_of_follow_ups_stays_on_its_topic() -> None:
    """The last question has few terms; the entry that answered the one before supplies the topic."""
    before = ("How long is the warranty of the drill DR-8830-C?", "and is its battery covered?")
    assert found("for how many years?", *before)[0] == "product-warranty-dr-8830-c"


@pytest.mark.parametrize("opening", ["", "and ", "ok, "])
def test_a_self_contained_question_is_not_drawn_back_to_the_old_topic(opening: str) -> None:
    """Every question of the table is asked after three about something else."""
    pick = random.Random(7)
    drawn = []
    for question, wanted in QUESTIONS:
        alone = found(opening + question)
        for before, _ in pick.sample(QUESTIONS, 3):
            led = found(opening + question, before)
            if alone[:1] == [wanted] and led[:1] != alone[:1]:
                drawn.append((question, before, led))
    # An opener makes a short question a follow-up; one in fifty may rank the old topic first, and none may lose its own
    # entry.
    assert len(drawn) <= len(QUESTIONS) * 3 // 50
    assert all(dict(QUESTIONS)[question] in led[:2] for question, _, led in drawn)


@pytest.mark.parametrize(
    "question", ["How do I reset my password?", "Which payment methods do you accept?", "怎么注销账户？"]
)
def test_an_entrys_own_question_finds_it_after_any_turn(question: str) -> None:
    before = "Can I return items from the sale?"
    assert INDEX.search(question, previous=after(before)) == INDEX.search(question)


def test_an_entry_without_the_terms_asked_now_scores_low() -> None:
    """The entry on the kettle's filter answers a question on it, and not one on the kettle's noise."""
    before = after("kt-2040-s which filter")
    assert INDEX.search("which limescale filter?", previous=before)[0].score > 0.5
    assert INDEX.search("and how noisy is it?", previous=before)[0].score < 0.35


@pytest.mark.parametrize(
    ("question", "lean"),
    [
        ("And how long does that take?", Lean.OPENLY),
        ("what about shoes?", Lean.OPENLY),
        ("is it waterproof", Lean.OPENLY),
        ("那运费呢？", Lean.OPENLY),
        ("它防水吗", Lean.OPENLY),
        ("why?", Lean.TERSELY),
        ("how much?", Lean.TERSELY),
        ("多久？", Lean.TERSELY),
        ("asdfgh", Lean.NOT),
        ("my parcel has not arrived after two weeks although tracking says so", Lean.NOT),
        ("and my parcel has not arrived after two weeks although tracking says so", Lean.NOT),
    ],
)
def test_a_follow_up_is_detected_by_its_words(question: str, lean: Lean) -> None:
    assert lean_of(question, TermExtractor().weights(question), 0.1) is lean


def test_a_question_with_a_confident_hit_is_no_follow_up() -> None:
    for question, surely in (("and the opening hours?", 0.45), ("and how do I reset it, my password?", 0.85)):
        weights = TermExtractor().weights(question)
        assert lean_of(question, weights, surely - 0.01) is Lean.OPENLY
        assert lean_of(question, weights, surely) is Lean.NOT


@given(st.text(), st.floats(min_value=0, max_value=1))
def test_any_text_is_classified_as_follow_up_or_not(question: str, score: float) -> None:
    weights = TermExtractor().weights(question)
    assert isinstance(lean_of(question, weights, score), Lean)
    assert content_words(weights) >= 0


terms = st.dictionaries(st.text(min_size=1, max_size=4), st.floats(min_value=0.1, max_value=1.0))


@given(terms, terms, terms)
def test_joined_terms_include_all_and_own_terms_count_no_less(
    own: dict[str, float], previous: dict[str, float], grounding: dict[str, float]
) -> None:
    joined = with_previous(own, previous, grounding)
    assert joined.keys() == own.keys() | previous.keys() | grounding.keys()
    assert all(joined[term] >= weight for term, weight in own.items())
    assert all(joined[term] < 1.0 for term in joined if term not in own)


@given(st.text(max_size=80), st.text(max_size=80))
def test_a_search_after_any_turn_keeps_its_promises(question: str, before: str) -> None:
    turn = Turn(request_id="r", user=before, output_text="", source="model")
    hits = INDEX.search(question, previous=(turn,))
    assert all(0 < hit.score <= 1 for hit in hits)
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert len({hit.entry.id for hit in hits}) == len(hits) <= 3
