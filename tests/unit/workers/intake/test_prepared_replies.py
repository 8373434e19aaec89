"""Replies to a question back, and the sentences of the model that are shown."""

from typing import Any

import msgspec
import pytest

from shared.faq import FaqEntry, detect_language
from shared.faq.answer_policy import AnswerPolicy, Clarify
from shared.faq.decision.sureness import Thresholds
from shared.faq.index import Found
from shared.wire.messages import Said
from tests.support.samples.prompts import TOKENIZER, said
from tests.unit.workers.intake.test_prepare import DELIVERY, INDEX, NOW, POLICY, RETURNS, entry, job
from workers.request.ending import terminal_event
from workers.request.job import Job
from workers.schedule.sequence import Finished


def written(asked: Job, text: str) -> str:
    for token_id in TOKENIZER.encode_text(text):
        asked.answer.add(token_id)
    asked.answer.finish()
    return asked.answer.text


def test_an_answer_names_what_its_entries_or_the_shops_earlier_words_name() -> None:
    earlier = said("I paid 17 euros for AX-3391-B.", DELIVERY.answer, [DELIVERY.as_grounding()], source="faq")
    for named in ("You have 30 days.", "It takes 3 days.", "It is 30 days for AX-3391-B."):
        assert written(job(RETURNS.question, turns=[earlier]), named) == named
    for claimed in ("You have 99 days.", "It is 17 euros."):
        assert written(job(RETURNS.question, turns=[earlier]), claimed) == RETURNS.answer
    assert written(job(RETURNS.question, guarded=False), "You have 99 days.") == "You have 99 days."


def test_only_a_model_that_paraphrases_may_use_words_that_the_shop_lacks() -> None:
    own = "Anything that disappoints goes back to us without a fuss."
    assert written(job(RETURNS.question), own) == RETURNS.answer
    assert written(job(RETURNS.question, paraphrases=True), own) == own
    assert written(job(RETURNS.question, paraphrases=True), "You have 99 days.") == RETURNS.answer


def test_where_nothing_that_was_written_can_be_shown_there_is_something_to_say() -> None:
    grounded, anything = job(RETURNS.question), job("Sing!", policy=AnswerPolicy(grounded=False))
    assert [asked.instead.source for asked in (grounded, anything) if asked.instead] == ["faq", "unsure"]


def test_where_the_model_does_not_know_its_entries_are_quoted_instead() -> None:
    asked = job(RETURNS.question)
    assert written(asked, "I am sorry, I do not know that. Shall I connect you with a person?") == ""
    ended = terminal_event(asked, Finished(asked.sequence, "completed", "stop"), model="shop", gateways="chat.replies")
    assert (ended.source, ended.grounding) == ("quote", (RETURNS.as_grounding(),))
    assert RETURNS.answer in ended.output_text


def test_an_entry_without_its_yes_is_quoted_where_the_model_does_not_know(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model is given the entry without a "Yes" that answers another question."""
    other = entry(id="returns", question=RETURNS.question, answer=f"Yes. {RETURNS.answer}")
    find, index = INDEX.find, INDEX

    def found(*args: Any, **options: Any) -> Found:
        hits = [
            msgspec.structs.replace(hit, entry=other, bears_opening=False) for hit in find(*args, **options).hits[:1]
        ]
        return Found(tuple(hits))

    monkeypatch.setattr(index, "find", found)
    asked = job(RETURNS.question)
    assert asked.quoted is not None
    assert RETURNS.answer in asked.quoted.text


ASKED_WHICH = POLICY.reply(Clarify((RETURNS, DELIVERY), "en"))


@pytest.mark.parametrize("told", [False, True], ids=["history", "turns"])
@pytest.mark.parametrize(
    ("reply", "answers"),
    [
        ("1", [RETURNS]),
        ("the second one", [DELIVERY]),
        ("delivery takes how long", [DELIVERY]),
        ("both", [RETURNS, DELIVERY]),
    ],
)
def test_a_reply_to_the_question_which_one_is_meant_gets_that_entry(
    reply: str, answers: list[FaqEntry], told: bool
) -> None:
    turn = said("help", ASKED_WHICH.text, name="r0", source="clarify", asked_unix_ms=NOW - 90)
    before: dict[str, Any] = (
        {"turns_told": (Said(user="help", assistant=ASKED_WHICH.text),)} if told else {"turns": [turn]}
    )
    answered = job(reply, **before)
    assert (answered.decided, answered.fallback.source) == (True, "faq")
    assert answered.fallback.text == "\n\n".join(entry.answer for entry in answers)


@pytest.mark.parametrize(("reply", "says"), [("None of these", "I don't know"), ("都不是", "不清楚")])
def test_a_reply_that_refuses_both_gets_what_can_be_done(reply: str, says: str) -> None:
    turn = said("help", ASKED_WHICH.text, name="r0", source="clarify", asked_unix_ms=NOW - 90)
    answered = job(reply, turns=[turn]).fallback
    assert answered.source == "unsure"
    assert says in answered.text


def test_a_button_asks_the_entrys_question_as_a_suggestion_does() -> None:
    turn = said("help", ASKED_WHICH.text, name="r0", source="clarify", asked_unix_ms=NOW - 90)
    assert job(RETURNS.question, turns=[turn]).fallback.text == RETURNS.answer


def test_a_customer_is_not_asked_twice_in_a_row() -> None:
    policy = AnswerPolicy(thresholds=Thresholds(confident=1.0, weak=0.0))
    question = "return delivery"
    turns = [said(question, ASKED_WHICH.text, name="r0", source="clarify", asked_unix_ms=NOW - 90)]
    assert job(question, policy=policy).fallback.source == "clarify"
    assert job(question, policy=policy, turns=turns).fallback.source == "quote"


@pytest.mark.parametrize("message", ["👍", "😡", "???", "20261129001", "#4711"])
@pytest.mark.parametrize(
    ("said_before", "language"),
    [
        (["退款需要多久？"], "zh"),
        (["退款需要多久？", "👍"], "zh"),
        (["How long?"], "en"),
        (["好", "Hello"], "en"),
        ([], "en"),
    ],
)
def test_a_message_without_letters_is_answered_in_the_conversations_language(
    message: str, said_before: list[str], language: str
) -> None:
    turns = [
        said(text, "…", name=f"before-{place}", asked_unix_ms=NOW - 90 + place)
        for place, text in enumerate(said_before)
    ]
    asked = job(message, turns=turns)
    assert asked.instead
    assert asked.instead.language == language
    assert detect_language(asked.instead.text) == language


@pytest.mark.parametrize(("message", "language"), [("？？？", "zh"), ("OK", "en"), ("谢谢", "zh")])
def test_a_message_with_letters_or_chinese_signs_has_its_own_language(message: str, language: str) -> None:
    for before in ("退款需要多久？", "How long?"):
        asked = job(message, turns=[said(before, "…", asked_unix_ms=NOW - 90)])
        assert asked.instead
        assert asked.instead.language == language
