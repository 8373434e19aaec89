"""An affirmation after an offered person is a request for one, at every door; after any other answer it is not."""

from typing import Any, Final

import pytest

from gateway.access.charges import Caller
from gateway.people.people import People
from shared.conversation.turn import Turn
from shared.faq.answer_policy import AnswerPolicy, Courtesy, Unknown
from shared.faq.fallback import Fallback, choose_fallback
from shared.faq.small_talk import IN_NEED
from shared.faq.speech.words import WaysOn
from shared.settings.gateway import HandoffSettings
from shared.wire.messages import Language, Said
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import answer, make_entry
from tests.support.fakes.gateway_services import FakeHistory, FakeQuotas
from tests.support.fakes.people_log import idle_log
from tests.unit.gateway.people.test_handoffs import Broker, Store, made

WHO: Final = Caller(SessionKey("t", "a"))
POLICY: Final = AnswerPolicy(ways_on=WaysOn(handoff=True))
OFFERS: Final = {
    **{f"unsure {language}": POLICY.reply(Unknown(language)).text for language in ("en", "zh")},
    **{
        f"{kind} {language}": POLICY.reply(Courtesy(kind, language)).text
        for kind in IN_NEED
        for language in ("en", "zh")
    },
    **{f"busy {asked}": choose_fallback(asked, (), ways_on=POLICY.ways_on).text for asked in ("Why?", "为什么")},
}
ACCEPTED: Final = (
    *("yes", "Yes please!", "please do", "ok", "OK.", "sure", "yeah sure", "that would be great", "yes, thanks"),
    *("yesss", "uh yes", "by all means", "I'd appreciate that", "that would be wonderful"),
    *(
        "connect me please",
        "I'd like that",
        "go ahead",
        "yes, to a person please",
        "可以",
        "好的",
        "是的",
        "要",
        "好啊，麻烦了",
    ),
    *(
        "那就转吧",
        "需要，谢谢",
        "好嘅",
        "請轉",
        "👍",
        "👌🏻",
        "ｙｅｓ",
        "y\u00ades",
        "<p>Yes</p>",
        "yes\n\n> A person can help you",
    ),
)
NOT_ACCEPTED: Final = (
    *(
        "no",
        "no thanks",
        "ok thanks",
        "thanks",
        "not now",
        "yes but how long does it take",
        "好的，谢谢",
        "不用",
        "不要",
    ),
    *(
        "👎",
        "?",
        "please tell me about refunds",
        "do you ship to Canada",
        "可以退货吗",
        "要多久",
        "",
        "ok, when do you open",
    ),
)


def desk(history: FakeHistory, *, enabled: bool = True) -> tuple[People, Broker]:
    broker = Broker()
    quotas: Any = FakeQuotas()
    kept: Any = history
    settings = HandoffSettings(enabled=enabled, after_fallbacks=0)
    handoffs = made(broker, Store(), quotas=quotas)
    return People(
        settings=settings, handoffs=handoffs, quotas=quotas, history=kept, log=idle_log(), bad_answers=quotas
    ), broker


def turn(text: str, name: str = "r1") -> Turn:
    return Turn(request_id=name, user="Do you sell lobsters?", output_text=text, source="unsure")


async def replied(door: str, said: str, last: str, *, enabled: bool = True) -> Fallback | None:
    """Return the reply to `said` after the answer `last`, according to its flags."""
    history = FakeHistory()
    people, broker = desk(history, enabled=enabled)
    turns: list[Said] | None = None
    if door == "told with the question":
        turns = [Said(user="hi", assistant="Hello!"), Said(user="lobsters?", assistant=last)]
    elif door == "this gateway":
        history.remembered.append(turn("earlier", "r0"))
        people.note_answer(make_entry(1, session=WHO.session), answer("r1", last, source="unsure"), None)
    else:
        people.note_answer(make_entry(0, session=WHO.session), answer("r0", "earlier"), None)
        history.remembered += [turn("earlier", "r0"), turn(last)]
    fallback = await people.answer_wish(make_entry(2, session=WHO.session, input=said), lambda _: None, WHO, turns)
    assert len(broker.records) == (fallback is not None)
    return fallback


@pytest.fixture(params=["told with the question", "this gateway", "another gateway"])
def door(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("said", ACCEPTED)
async def test_an_affirmation_after_an_offer_asks_for_a_person(door: str, said: str) -> None:
    fallback = await replied(door, said, OFFERS["unsure en"])
    assert fallback is not None
    assert fallback.source == "handoff"


@pytest.mark.parametrize("offer", OFFERS)
async def test_each_offer_can_be_accepted(door: str, offer: str) -> None:
    assert await replied(door, "yes please", OFFERS[offer]) is not None


@pytest.mark.parametrize("said", NOT_ACCEPTED)
async def test_a_message_that_accepts_nothing_is_answered_normally(door: str, said: str) -> None:
    assert await replied(door, said, OFFERS["unsure en"]) is None


@pytest.mark.parametrize("last", ["You can return an item within 30 days.", "", "All right. Ask me whenever you like."])
async def test_an_affirmation_after_another_answer_is_no_wish(door: str, last: str) -> None:
    assert await replied(door, "yes please", last) is None


async def test_no_offer_is_accepted_without_people(door: str) -> None:
    assert await replied(door, "yes please", OFFERS["unsure en"], enabled=False) is None


async def test_a_conversation_that_begins_with_yes_requests_no_person() -> None:
    people, broker = desk(FakeHistory())
    for turns in (None, ()):
        assert await people.answer_wish(make_entry(input="yes"), lambda _: None, WHO, turns) is None
    assert broker.records == []


async def test_the_conversations_last_answer_counts_in_any_tab() -> None:
    history = FakeHistory()
    people, _ = desk(history)
    people.note_answer(make_entry(1, session=WHO.session), answer("r1", OFFERS["unsure en"], source="unsure"), None)
    people.note_answer(make_entry(2, session=WHO.session), answer("r2", "Within 30 days."), None)
    assert await people.answer_wish(make_entry(3, session=WHO.session, input="yes"), lambda _: None, WHO) is None


async def test_a_forgotten_conversation_offered_nothing() -> None:
    people, _ = desk(FakeHistory())
    people.note_answer(make_entry(1, session=WHO.session), answer("r1", OFFERS["unsure en"], source="unsure"), None)
    people.answers.forget(WHO.session)
    assert await people.answer_wish(make_entry(3, session=WHO.session, input="yes"), lambda _: None, WHO) is None


@pytest.mark.parametrize("language", ["en", "zh"])
def test_a_customer_who_may_need_a_person_is_offered_one_if_available(language: Language) -> None:
    for kind in IN_NEED:
        offered = POLICY.reply(Courtesy(kind, language)).text
        assert offered.startswith(AnswerPolicy().reply(Courtesy(kind, language)).text + "\n\n")
