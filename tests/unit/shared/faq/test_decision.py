"""An entry answers a question only where the two bear that out, and any text gets a decision."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.faq import FaqEntry, FaqIndex
from shared.faq.answer_policy import AnswerPolicy, DirectAnswer, Ground, Quote
from shared.faq.decision.asked import asks_for, states
from shared.faq.decision.packaged import PACKAGED, Decisions, deciders
from shared.faq.decision.same import core_of, cores_of
from shared.faq.decision.sureness import FITTED
from shared.faq.fallback import choose_fallback

INDEX = FaqIndex.load()
POLICY = AnswerPolicy(languages=())


def entry(name: str, question: str, answer: str) -> FaqEntry:
    return FaqEntry(id=name, topic="t", language="en", question=question, alternatives=(), answer=answer)


@pytest.mark.parametrize(
    "question",
    [
        "Is the oak table FSC certified?",
        "Can I pay with Bitcoin?",
        "who makes the oak table",
        "is the invoice available in french",
        "橡木桌有 FSC 认证吗",
        "发票有法语的吗",
    ],
)
def test_what_the_entry_does_not_say_is_never_claimed(question: str) -> None:
    found = INDEX.find(question, k=2)
    assert not isinstance(POLICY.decide(question, found.hits, found.parts), Ground | DirectAnswer)
    assert choose_fallback(question, INDEX.search(question)).source in {"quote", "busy"}


@pytest.mark.parametrize("entry", INDEX.entries[::7], ids=lambda each: f"{each.id}-{each.language}")
def test_an_entrys_own_question_is_answered_by_it(entry: FaqEntry) -> None:
    (best, *_) = INDEX.search(entry.question, language=entry.language)
    assert (best.entry, best.sureness) == (entry, 1.0)


@pytest.mark.parametrize(
    "question",
    [
        "Do you ship to Norway?",
        "do you ship to switzerland",
        "Can I change my delivery address?",
        "hi, can you change the delivery address please",
        "What's your return policy?",
        "what is the return policy",
        "退货政策是什么？",
        "How do I reset my password?",
        "How long do I have to return an item?",
        "你们寄到挪威吗？",
        "能寄到瑞士吗",
    ],
)
def test_a_question_in_the_words_of_a_wording_is_answered(question: str) -> None:
    assert isinstance(POLICY.decide(question, INDEX.find(question, k=2).hits), DirectAnswer)


@pytest.mark.parametrize(
    ("question", "wording"),
    [
        ("why was my order cancelled by you", "How do I cancel my order?"),
        ("How long can I change the address?", "Can I change the address?"),
        ("Can't I change the address?", "Can I change the address?"),
        ("What does the delivery cost?", "Does the delivery take long?"),
        ("Do you ship to Iceland?", "ship to Switzerland or Norway"),
        ("What is your delivery cost to Spain?", "delivery cost"),
        ("What is wrong with your return policy?", "return policy"),
        ("How?", "How do you do?"),
        ("能寄到冰岛吗", "能寄到瑞士、挪威吗"),
        ("不能改地址吗", "可以改地址吗"),
    ],
)
def test_another_question_is_not_one_in_the_words_of_a_wording(question: str, wording: str) -> None:
    assert core_of(question) not in cores_of(wording)


@pytest.mark.parametrize("question", ["any outlet in Berlin", "any outlet in berlin?", "A shop in Berlin?", "Klarna?"])
def test_a_name_that_only_a_wording_for_the_search_has_is_not_claimed(question: str) -> None:
    stores = entry("stores", "Where are your stores?", "We have stores in Hamburg and Gdansk. You can pay by card.")
    stores = msgspec.structs.replace(stores, also=("any outlet in Berlin", "can I pay with Klarna"))
    hits = FaqIndex([stores]).search(question, k=2)
    assert hits[0].sureness < FITTED.confident
    there = msgspec.structs.replace(stores, answer="We have stores in Berlin. You can pay with Klarna.")
    assert FaqIndex([there]).search(question, k=2)[0].sureness >= hits[0].sureness


@pytest.mark.parametrize(
    ("question", "kinds"),
    [
        ("How much is delivery?", {"money"}),
        ("How long does it take?", {"period"}),
        ("who carries it", {"name"}),
        ("运费多少钱", {"money"}),
        ("多久能到", {"period"}),
        ("how heavy is it", {"weight", "number"}),
        ("背包有多重", {"weight", "number"}),
        ("how tall is the lamp", {"length", "number"}),
        ("电钻噪音多大", {"noise", "number"}),
        ("Tell me about returns", set()),
    ],
)
def test_a_question_asks_for_sorts_of_fact(question: str, kinds: set[str]) -> None:
    assert asks_for(question) == kinds


@pytest.mark.parametrize(
    ("question", "sentence"),
    [
        ("how heavy is the backpack BP-5520-K", "It weighs 900 g."),
        ("how loud is the drill DR-8830-C?", "It makes 80 dB."),
        ("how tall is the lantern LN-7715-G", "It is 23 cm tall."),
    ],
)
def test_a_weight_a_length_and_a_loudness_are_claimed_only_if_stated(question: str, sentence: str) -> None:
    best = INDEX.search(question, k=2)[0]
    assert best.sureness < FITTED.confident
    there = msgspec.structs.replace(best.entry, answer=f"{best.entry.answer} {sentence}")
    assert FaqIndex([there]).search(question, k=2)[0].sureness > best.sureness


def test_a_text_states_sorts_of_fact() -> None:
    assert {"money", "number"} <= states("Express costs €12.90.")
    assert "money" not in states("It takes 3 days.")
    assert "name" in states("We ship with DHL.")


ODD = [
    [entry("one", "Do you ship?", "We ship.")],
    [entry("a", "Is it free?", "Yes, it is free."), entry("b", "Is it for free?", "No, it costs €5.")],
    [entry("bare", "Do you ship?", "…")],
    [entry("signs", "Do you ship?", "!!! ??? 🚚")],
]
QUESTIONS = ["🙂", "", "?", "x" * 600, "is it free 可以免费吗 shipping 寄送", "ship " * 120, "Do you ship?", "免费吗"]


@pytest.mark.parametrize("entries", ODD, ids=["one", "contradicting", "bare", "signs"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_odd_faqs_and_questions_get_one_of_the_three_ways(entries: list[FaqEntry], question: str) -> None:
    index = FaqIndex(entries)
    found = index.find(question, k=2)
    assert POLICY.decide(question, found.hits, found.parts)
    chosen = choose_fallback(question, found.hits)
    assert chosen.text
    assert chosen.source in {"faq", "quote", "busy"}


@settings(deadline=None, max_examples=50)
@given(st.text(max_size=80))
def test_any_text_is_decided(question: str) -> None:
    found = INDEX.find(question, k=2)
    assert all(0 <= hit.sureness <= 1 for hit in found.hits)
    decision = POLICY.decide(question, found.hits, found.parts)
    if isinstance(decision, Quote):
        assert found.hits[0].sureness < FITTED.confident


def test_each_packaged_forest_has_a_bound_for_each_language() -> None:
    packaged = msgspec.json.decode(PACKAGED.read_bytes(), type=Decisions)
    for decision in (packaged.terms, *(each.decision for each in packaged.vectors)):
        assert decision.bounds.keys() == {"en", "zh"}
        assert all(0 < bound.alpha <= 0.1 and bound.n >= 100 for bound in decision.bounds.values())


def test_an_encoder_is_recognised_by_its_vector_whatever_its_dimensions() -> None:
    packaged = msgspec.json.decode(PACKAGED.read_bytes(), type=Decisions)
    for each in packaged.vectors:
        probe = np.array(each.probe, dtype=np.float32)
        assert deciders().of_encoder(probe / np.linalg.norm(probe)) is not None
        assert deciders().of_encoder(np.roll(probe, 1)) is None
    assert deciders().of_encoder(np.ones(3, dtype=np.float32)) is None
