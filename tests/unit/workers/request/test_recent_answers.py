"""The same question, asked again under the same id a short while after, gets the answer that there is."""

import msgspec
import pytest

from shared.conversation.turn import Turn
from shared.wire.messages import ReplyDone
from shared.wire.outcome import Grounding, Replaced, Timings, Usage
from shared.wire.session_key import SessionKey
from tests.support.builders.wire import done
from tests.support.builders.worker import NOW, order
from workers.request.recent_answers import RecentAnswers, answered_by


def test_an_answer_is_found_again_for_two_minutes() -> None:
    recent = RecentAnswers()
    recent.add(order(), done(), NOW)
    assert recent.find(order(), NOW + 120_000) == done()
    assert recent.find(order(), NOW + 120_001) is None


@pytest.mark.parametrize("other", [{"name": "q"}, {"session_id": "s2"}, {"input": "ho"}, {"tenant": "shop"}], ids=str)
def test_another_question_conversation_tenant_or_id_finds_nothing(other: dict[str, str]) -> None:
    recent = RecentAnswers()
    recent.add(order(), done(), NOW)
    assert recent.find(order(**other), NOW) is None


def test_what_gave_the_client_nothing_is_tried_again() -> None:
    recent = RecentAnswers()
    for bad in (done(status="failed"), done(status="cancelled"), done(status="incomplete", text="")):
        recent.add(order(), bad, NOW)
        assert recent.find(order(), NOW) is None
    recent.add(order(), done(status="incomplete"), NOW)
    assert recent.find(order(), NOW) is not None


def test_only_so_many_are_kept_and_none_for_longer_than_two_minutes() -> None:
    recent = RecentAnswers(capacity=3)
    for number in range(5):
        recent.add(order(f"r{number}"), done(request_id=f"r{number}"), NOW)
    found = [recent.find(order(f"r{number}"), NOW) is not None for number in range(5)]
    assert found == [False, False, True, True, True]
    recent.add(order("last"), done(request_id="last"), NOW + 120_000)
    assert len(recent) == 3
    recent.add(order("new"), done(request_id="new"), NOW + 120_001)
    assert len(recent) == 2


def test_an_answer_given_anew_takes_the_place_of_the_one_before_and_stays_longest() -> None:
    recent = RecentAnswers(capacity=2)
    for request_id, text in (("r", "Hello"), ("q", "Hello"), ("r", "Hello again"), ("p", "Hello")):
        recent.add(order(request_id), done(text, request_id), NOW)
    assert recent.find(order("q"), NOW) is None
    assert recent.find(order(), NOW) == done(text="Hello again")


def test_whoever_knows_that_an_answer_was_asked_for_finds_it_by_its_id() -> None:
    recent = RecentAnswers()
    recent.add(order(input="ho", tenant="shop"), done(), NOW)
    assert recent.named("r", NOW + 120_000) == done()
    assert recent.named("r", NOW + 120_001) is None
    assert recent.named("q", NOW) is None


def test_an_erased_conversations_answers_are_forgotten() -> None:
    recent = RecentAnswers()
    recent.add(order(), done(), NOW)
    recent.add(order("q", session_id="s2"), done(request_id="q"), NOW)
    recent.forget(SessionKey("demo", "s"))
    assert recent.find(order(), NOW) is None
    assert recent.find(order("q", session_id="s2"), NOW) is not None


TURN = Turn(
    request_id="r",
    user="hi",
    output_text="Hello",
    source="faq",
    usage=Usage(output_tokens=2),
    asked_unix_ms=int(NOW),
    output_ids=(1, 2),
    grounding=(Grounding(id="returns", question="Returns?", answer="In 30 days."),),
    replaced=(Replaced(offset=0, length=2),),
)


def test_the_history_answers_where_another_worker_did() -> None:
    """For as long as an answer may have taken, and may be asked for again."""
    now = NOW + 240_000
    assert answered_by(TURN, order(), now) == ReplyDone(
        request_id="r",
        session_id="s",
        attempt=int(now),
        status="completed",
        reason="stop",
        source="faq",
        output_text="Hello",
        usage=Usage(output_tokens=2),
        timings=Timings(),
        grounding=TURN.grounding,
        replaced=TURN.replaced,
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"status": "cancelled"},
        {"status": "failed"},
        {"output_text": ""},
        {"request_id": "q"},
        {"user": "ho"},
        {"asked_unix_ms": int(NOW) - 240_001},
    ],
)
def test_another_an_old_turn_or_one_that_gave_the_client_nothing_answers_nothing(fields: dict[str, object]) -> None:
    assert answered_by(msgspec.structs.replace(TURN, **fields), order(), NOW) is None
