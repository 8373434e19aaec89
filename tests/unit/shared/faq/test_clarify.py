"""Where two or three entries fit equally well the customer is asked which is meant, and the reply is understood."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.faq import FaqEntry, FaqHit
from shared.faq.answer_policy import AnswerPolicy, Clarify, DirectAnswer, Ground, Quote
from shared.faq.speech.clarify import asked_by, clarifying_text, is_topic, meant_by, says_neither

TIME, COST = "How long does delivery take?", "How much does delivery cost?"
TIME_ZH, COST_ZH = "多久送达？", "运费多少？"
TRACK = "How do I track a delivery?"
THREE = (TIME, COST, TRACK)
POLICY = AnswerPolicy(languages=())


def hit(name: str, score: float, *, question: str | None = None, sureness: float = 0.0) -> FaqHit:
    entry = FaqEntry(
        id=name, topic="t", language="en", question=question or f"What is {name}?", alternatives=(), answer=f"{name}."
    )
    return FaqHit(entry, score, sureness=sureness)


def test_two_entries_that_fit_equally_well_are_offered() -> None:
    decision = POLICY.decide("delivery", [hit("time", 0.5, question=TIME), hit("cost", 0.4, question=COST)])
    assert isinstance(decision, Clarify)
    answer = POLICY.reply(decision)
    assert answer.source == "clarify"
    assert answer.text == f"Which of these do you mean?\n1. {TIME}\n2. {COST}"
    assert [entry.question for entry in answer.grounding] == [TIME, COST]


@pytest.mark.parametrize(
    ("fourth", "offered"),
    [
        (hit("d", 0.5, question="Where is it?"), list(THREE)),
        (hit("d", 0.5, question=TIME.upper()), list(THREE)),
    ],
)
def test_at_most_three_entries_are_offered(fourth: FaqHit, offered: list[str]) -> None:
    hits = [hit(name, 0.5 - place / 50, question=name) for place, name in enumerate(THREE)]
    decision = POLICY.decide("delivery", [*hits, fourth])
    assert isinstance(decision, Clarify)
    assert [entry.question for entry in POLICY.reply(decision).grounding] == offered


@pytest.mark.parametrize(("score", "question"), [(0.3, TRACK), (0.5, COST.lower())])
def test_a_third_that_fits_worse_or_asks_the_same_is_not_offered(score: float, question: str) -> None:
    hits = [hit("a", 0.5, question=TIME), hit("b", 0.5, question=COST), hit("c", score, question=question)]
    decision = POLICY.decide("delivery", hits)
    assert isinstance(decision, Clarify)
    assert [entry.question for entry in decision.entries] == [TIME, COST]


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        *((reply, TIME) for reply in ("1", "first", "how long", "第一个")),
        *((reply, COST) for reply in ("2", "the second one", "the cost", "第二个")),
        *((reply, TRACK) for reply in ("3", "third", "the last one", "tracking", "第三个", "最后一个", TRACK)),
        *((reply, " ".join(THREE)) for reply in ("all", "all three of them", "都要", "三个都要")),
        *(
            (reply, None)
            for reply in ("4", "both", "delivery", "the former of none", "none of the three", "三个都不对")
        ),
    ],
)
def test_a_reply_names_one_of_three(reply: str, meant: str | None) -> None:
    assert meant_by(reply, THREE) == meant
    assert asked_by(clarifying_text(THREE, "en")) == THREE


@pytest.mark.parametrize(
    ("hits", "kind"),
    [
        ([hit("a", 0.5, sureness=0.9), hit("b", 0.5)], DirectAnswer),
        ([hit("a", 0.5), hit("b", 0.3)], Quote),
        ([hit("a", 0.2), hit("b", 0.2)], Quote),
        ([hit("a", 0.5)], Quote),
        ([hit("a", 0.5, question="Where?"), hit("b", 0.5, question="where")], Quote),
    ],
    ids=["one is sure", "one fits better", "both fit badly", "one alone", "both ask the same"],
)
def test_nothing_is_asked_where_an_entry_may_be_shown_first(hits: list[FaqHit], kind: type) -> None:
    assert isinstance(POLICY.decide("delivery", hits), kind)


@pytest.mark.parametrize(
    ("text", "topic"),
    [
        *((text, True) for text in ("shipping", "Gift cards?", "gift-card", "退货", "退货运费", "退货！")),
        *(
            (text, False)
            for text in ("", "?", "42", "how much is shipping", "退货运费谁出", "is it free", "几天能到", "AX-3391-B")
        ),
    ],
)
def test_only_a_bare_topic_is_asked_about(text: str, topic: bool) -> None:
    hits = [hit("time", 0.5, question=TIME), hit("cost", 0.45, question=COST)]
    assert is_topic(text) == topic
    assert isinstance(POLICY.decide(text, hits), Clarify) <= topic


def test_nothing_is_asked_twice_in_a_row_nor_of_a_message_with_several_questions() -> None:
    hits = [hit("a", 0.5), hit("b", 0.5)]
    assert isinstance(POLICY.decide("delivery", hits, may_ask=False), Quote)
    assert isinstance(POLICY.decide("delivery", hits, [hits[:1], hits[1:]]), Quote)
    assert isinstance(AnswerPolicy(grounded=False).decide("delivery", hits), Ground)


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        *((reply, TIME) for reply in ("1", "1.", "#1", "the first", "The first one, please", "option 1", TIME)),
        *((reply, TIME) for reply in ("how long", "ＨＯＷ　ＬＯＮＧ？", "I mean the first")),
        *((reply, COST) for reply in ("2", "second", "the latter", "the cost", "how much it costs", "last one", COST)),
        ("both", f"{TIME} {COST}"),
        *((reply, None) for reply in ("3", "third", "all three")),
        *((reply, None) for reply in ("", "11", "yes", "delivery", "neither", "how do I return a lamp to your store")),
    ],
)
def test_a_reply_names_one_of_the_two(reply: str, meant: str | None) -> None:
    assert meant_by(reply, (TIME, COST)) == meant


@pytest.mark.parametrize(
    ("reply", "meant"),
    [
        *((reply, TIME_ZH) for reply in ("1", "第一个", "第一个吧", "前者", "多久", "选1")),
        *((reply, COST_ZH) for reply in ("2", "第二个", "选第二个", "后者", "运费")),
        ("都要", f"{TIME_ZH} {COST_ZH}"),
        *((reply, None) for reply in ("十一", "都不是", "怎么退货")),
    ],
)
def test_a_chinese_reply_names_one_of_the_two(reply: str, meant: str | None) -> None:
    assert meant_by(reply, (TIME_ZH, COST_ZH)) == meant


@pytest.mark.parametrize(
    ("reply", "neither"),
    [
        *((reply, True) for reply in ("neither", "None of these.", "none of them, thanks", "都不是", "两个都不对")),
        *((reply, False) for reply in ("1", "none of my parcels came", "都要", "")),
    ],
)
def test_a_reply_can_refuse_both(reply: str, neither: bool) -> None:
    assert says_neither(reply) == neither
    assert not neither or meant_by(reply, (TIME, COST)) is meant_by(reply, (TIME_ZH, COST_ZH)) is None


@given(st.text(max_size=40))
def test_no_reply_means_anything_where_nothing_was_asked(reply: str) -> None:
    assert meant_by(reply, asked_by(f"1. {reply}\n2. More")) is None
    assert meant_by(reply, (TIME, COST)) in {None, TIME, COST, f"{TIME} {COST}"}


@pytest.mark.parametrize("questions", [(TIME, COST), (TIME_ZH, COST_ZH)])
def test_the_offered_questions_are_read_from_the_text(questions: tuple[str, ...]) -> None:
    assert asked_by(clarifying_text(questions, "zh" if TIME_ZH in questions else "en")) == questions
