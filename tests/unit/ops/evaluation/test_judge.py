"""An answer is right by its facts, for any author; an unsupported one is never right."""

import pytest

from ops.evaluation.judging.judge import Given, judge, retrieved
from ops.evaluation.judging.questions import Exchange, Question
from shared.wire.outcome import Grounding

RETURNS = Grounding(
    id="return-period",
    question="How long do I have to return something?",
    answer="You can return items within 30 days of delivery.",
)
PERSON = Grounding(id="contact-person", question="Can I speak to a person?", answer='Of course: type "agent".')
ASKED = Question(
    id="en-1",
    language="en",
    kind="paraphrase",
    split="held_out",
    question="Is it 90 days?",
    entries=("return-period",),
    must=(("30 days", "thirty nights"),),
    must_not=("90 days",),
)
UNKNOWN = Question(id="en-2", language="en", kind="unanswerable", split="dev", question="Who owns you?")
ASTRAY = Question(
    id="en-3", language="en", kind="astray", split="dev", question="Write a poem.", must_not=("roses are red",)
)
HELLO = Question(id="en-4", language="en", kind="small_talk", split="dev", question="hi")


def by_model(text: str, *grounding: Grounding) -> Given:
    return Given(source="model", text=text, grounding=grounding)


@pytest.mark.parametrize(
    "text",
    [
        "You have thirty days.",
        "No, it is not 90 days but 30 days.",
        "It isn't 90 days: you have 30 days.",
        "30 days rather than 90 days.",
    ],
)
def test_facts_count_in_any_accepted_spelling_and_a_denied_one_is_not_claimed(text: str) -> None:
    assert judge(ASKED, by_model(text, RETURNS)).why == ()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("You can return it.", ("missing: 30 days / thirty nights",)),
        ("Yes, 90 days. Formerly 30 days.", ("forbidden: 90 days",)),
        ("Not at all. It is 90 days, then 30 days.", ("forbidden: 90 days",)),
        ("You have 30 days and pay €7.", ("invented: 7 eur",)),
    ],
)
def test_what_is_wrong_is_said(text: str, why: tuple[str, ...]) -> None:
    verdict = judge(ASKED, by_model(text, RETURNS))
    assert (verdict.right, verdict.why) == (False, why)


def test_a_figure_of_the_conversation_is_not_invented() -> None:
    history = (Exchange(user="I paid 7 euros", assistant="Thank you."),)
    question = Question(
        id="en-1", language="en", kind="follow_up", split="dev", question="Is it 30 days?", history=history,
        entries=("return-period",), must=(("30 days",),),
    )  # fmt: skip
    assert judge(question, by_model("You paid €7; you have 30 days.")).right
    assert judge(question, by_model("You paid €8; you have 30 days.")).invented == ("8 eur",)


def test_the_shops_own_words_are_never_invented() -> None:
    verdict = judge(ASKED, Given(source="faq", text="Within 30 days, for €7."))
    assert (verdict.right, verdict.invented) == (True, ())


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (Given(source="unsure", text="I don't know that."), True),
        (Given(source="handoff", text="A colleague will answer."), True),
        (by_model("I'm sorry, I do not have that information."), True),
        (by_model("A colleague can help you with that."), True),
        (Given(source="faq", text=PERSON.answer, grounding=(PERSON,)), True),
        (Given(source="faq", text=RETURNS.answer, grounding=(RETURNS,)), False),
        (by_model("It belongs to Mr Pine."), False),
        (by_model("I don't know, perhaps since 1999."), False),
        (Given(source="busy", text="Sorry, we are very busy right now."), False),
        (Given(source="courtesy", text="Hello!"), False),
        (Given(error="deadline"), False),
    ],
)
def test_where_the_faq_knows_nothing_right_is_to_say_so_or_to_offer_a_person(given: Given, right: bool) -> None:
    assert judge(UNKNOWN, given).right is right


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (Given(source="courtesy", text="I am this shop's automated assistant."), True),
        (Given(source="unsure", text="I don't know that."), True),
        (by_model("I can't help with that. Roses are red."), False),
        (by_model("Violets are blue."), False),
    ],
)
def test_who_leads_astray_is_told_no(given: Given, right: bool) -> None:
    assert judge(ASTRAY, given).right is right


@pytest.mark.parametrize(
    ("given", "right"),
    [
        (Given(source="courtesy", text="Hello!"), True),
        (by_model("Hello, how can I help?"), True),
        (by_model("Hello, returns take 30 days.", RETURNS), False),
        (Given(source="faq", text=RETURNS.answer, grounding=(RETURNS,)), False),
    ],
)
def test_small_talk_is_not_answered_with_facts(given: Given, right: bool) -> None:
    assert judge(HELLO, given).right is right


def test_who_asks_for_a_person_and_gets_one_is_answered() -> None:
    question = Question(
        id="en-5", language="en", kind="paraphrase", split="held_out", question="A human, please.",
        entries=("contact-person",), must=(("agent",),),
    )  # fmt: skip
    assert judge(question, Given(source="handoff", text="One moment.")).right
    assert not judge(ASKED, Given(source="handoff", text="One moment.")).right


def test_an_entry_is_retrieved_among_the_best_and_a_double_question_needs_both() -> None:
    double = Question(
        id="en-6", language="en", kind="double", split="held_out", question="Both?",
        entries=("return-period", "return-label"), must=(("30 days",),),
    )  # fmt: skip
    assert retrieved(ASKED, ["return-how", "return-period"], 3)
    assert not retrieved(ASKED, ["return-how", "return-period"], 1)
    assert retrieved(double, ["return-label", "x", "return-period"], 1)
    assert retrieved(double, ["return-label", "x", "return-period"], 3)
    assert not retrieved(double, ["return-label", "x", "y"], 3)
