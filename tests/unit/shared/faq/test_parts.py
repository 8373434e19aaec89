"""Both questions of one message are found; a message with one question is not split."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.faq import FaqIndex
from shared.faq.parts import MOST_PARTS, parts_of
from tests.support.samples.faq_questions import CHINESE_QUESTIONS, ENGLISH_QUESTIONS

INDEX = FaqIndex.load()


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("How do I return it? And when do I get my money back?", 2),
        ("how do i return it and when do i get my money back", 2),
        ("I want to return shoes and also change my email address", 2),
        ("Where is my order, and can I still change it?", 2),
        ("What does delivery cost? How long does it take? Can I pay with PayPal?", 3),
        ("怎么退货？运费谁出？", 2),
        ("怎么退货，运费谁出", 2),
        ("我想退货，另外发票怎么开", 2),
        ("退款几天到账，还有能改地址吗", 2),
        ("Is the jacket AX-3391-B waterproof?", 1),
        ("My lamp arrived broken. What should I do?", 1),
        ("I ordered a lamp and a kettle", 1),
        ("can I pay by card or bank transfer?", 1),
        ("e.g. AX-3391-B, 3.5 cm?", 1),
        ("Can I pay later, on invoice?", 1),
        ("这款还有货吗", 1),
        ("你好，请问怎么退货", 1),
        ("", 1),
    ],
)
def test_a_message_is_split_before_its_second_question(text: str, parts: int) -> None:
    assert len(parts_of(text)) == parts


def test_a_story_stays_with_the_question_that_it_leads_to() -> None:
    assert parts_of("My lamp LN-7715-G is dim. How do I charge it? Can I pay later?") == [
        "My lamp LN-7715-G is dim. How do I charge it?",
        "Can I pay later?",
    ]


@pytest.mark.parametrize("questions", [ENGLISH_QUESTIONS, CHINESE_QUESTIONS], ids=["english", "chinese"])
def test_both_entries_of_two_questions_are_among_the_first_three(questions: tuple[tuple[str, str], ...]) -> None:
    """Adjacent questions of the table are joined if each is found by itself."""
    surely = [
        (text, wanted) for text, wanted in questions if (hits := INDEX.search(text, k=1)) and hits[0].entry.id == wanted
    ]
    pairs = list(itertools.pairwise(surely))
    both = 0
    for (one, first), (other, second) in pairs:
        ids = {hit.entry.id for hit in INDEX.search(f"{one.rstrip('?？ ')}? {other.rstrip('?？ ')}?")}
        both += {first, second} <= ids
    assert both / len(pairs) >= 0.85


def test_the_hits_of_each_question_are_separate() -> None:
    found = INDEX.find("How do I reset my password? And do you deliver on weekends?")
    assert [hits[0].entry.id for hits in found.parts] == ["account-password", "delivery-weekend"]
    assert {hit.entry.id for hit in found.hits[:2]} == {"account-password", "delivery-weekend"}
    assert INDEX.find("How do I reset my password?").parts == ()


@pytest.mark.parametrize(
    "question", ["怎么取消订单？另外运费是多少？", "How do I cancel my order? And how much does delivery cost?"]
)
def test_a_word_that_joins_two_questions_does_not_count(question: str) -> None:
    parts = INDEX.find(question).parts
    assert [(hits[0].entry.id, hits[0].sureness) for hits in parts] == [("order-cancel", 1.0), ("delivery-cost", 1.0)]


def test_a_second_question_may_be_a_follow_up_of_the_first() -> None:
    """Alone it finds how long a coupon is valid."""
    found = INDEX.find("Can I pay with a gift card? And when does it expire?")
    assert [hits[0].entry.id for hits in found.parts] == ["gift-card-use"] * 2
    assert INDEX.search("And when does it expire?")[0].entry.id != "gift-card-use"


def test_a_message_that_one_entry_covers_is_one_question() -> None:
    """The entry itself contains both questions."""
    found = INDEX.find("How do I charge the lantern LN-7715-G, and how long does it last then?")
    assert (found.hits[0].entry.id, found.parts) == ("product-charging-ln-7715-g", ())


@pytest.mark.parametrize("run", [" ", ",", "，", ", ", "，、", " and ", "？", "? ", "\n", "a ", "怎", "and also, "])
@pytest.mark.timeout(10)
def test_a_long_run_of_one_character_takes_linear_time(run: str) -> None:
    """If each character started another search, 60,000 blanks would take minutes."""
    run *= 60_000
    assert 1 <= len(parts_of(f"How do I return it{run}what does it cost")) <= MOST_PARTS
    assert 1 <= len(parts_of(run)) <= MOST_PARTS


@pytest.mark.parametrize("run", [" ", ",", "， ", "、，"])
def test_runs_of_blanks_and_commas_join_like_a_single_one(run: str) -> None:
    assert len(parts_of(f"我想退货{run * 40}另外发票怎么开")) == 2
    assert len(parts_of(f"How do I return it{run * 40} and when do I get my money back?")) == 2


def test_only_the_ends_of_a_long_message_are_split() -> None:
    story = "So I waited for the parcel. " * 40
    first, last = "How do I return it?", "And when do I get my money back?"
    assert len(parts_of(f"{first} {story}{last}")) == 2
    assert len(parts_of(f"{story}{first} {last} {story}")) == 1


@given(st.text(alphabet="ab ?.!,，。？；\n另外还有and alsohow怎么", max_size=120))
def test_the_parts_contain_exactly_the_messages_letters(text: str) -> None:
    parts = parts_of(text)
    assert 1 <= len(parts) <= MOST_PARTS
    letters = iter(char for char in text if char.isalnum())
    assert all(char in letters for char in "".join(parts) if char.isalnum())
