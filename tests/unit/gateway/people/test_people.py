"""Automatic hand-offs happen when nothing else helps, and at a limited rate."""

from typing import Any

import pytest
from structlog.testing import capture_logs

from gateway.access.charges import Caller
from gateway.people.people import People
from shared.settings import Settings
from shared.settings.gateway import HandoffSettings
from shared.wire.messages import Consent, ErrorEvent, Feedback, HandoffRequest, SessionStart
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import answer, make_entry
from tests.support.fakes.gateway_services import FakeQuotas
from tests.support.fakes.gateways import Edge, quiet
from tests.support.fakes.people_log import idle_log
from tests.unit.gateway.people.test_handoffs import Broker, Store, made


async def answered_from_the_faq(people: People, session_id: str, *, times: int = 2) -> None:
    for number in range(times):
        entry = make_entry(number, session=SessionKey("t", session_id), stood_in=True)
        people.note_answer(entry, answer(f"{session_id}{number}", source="faq"), None)
        await quiet()


def caring(broker: Broker, quotas: FakeQuotas, **settings: Any) -> People:
    counts: Any = quotas
    return People(
        settings=HandoffSettings(enabled=True, **settings),
        handoffs=made(broker, Store(), quotas=quotas),
        quotas=counts,
        bad_answers=counts,
        history=counts,
        log=idle_log(),
    )


async def test_hand_offs_after_fallbacks_are_limited_per_minute() -> None:
    """No client is offered one over the limit, because no client requested it."""
    broker, quotas = Broker(), FakeQuotas(handoffs_left=2)
    people = caring(broker, quotas)
    for session_id in ("a", "b", "c"):
        await answered_from_the_faq(people, session_id)
    assert quotas.handoffs == [("t", "fallbacks")] * 2
    assert [record.key for record in broker.records] == [b"t/a", b"t/b"]


async def test_a_hand_off_is_charged_to_the_asker_that_has_disconnected() -> None:
    """Otherwise one client that leaves before its answers uses up the tenant's limit."""
    broker, quotas = Broker(), FakeQuotas()
    people = caring(broker, quotas)
    asker = Caller(SessionKey("t", "a"), "mallory", "192.0.2.7")
    for number in range(2):
        entry = make_entry(number, session=asker.session, caller=asker, stood_in=True)
        people.note_answer(entry, answer(f"a{number}", source="faq"), None)
        await quiet()
    assert quotas.opened == [asker]


async def test_an_existing_hand_off_is_not_counted() -> None:
    """Otherwise sessions with an open hand-off would use up the others' limit."""
    broker, quotas = Broker(), FakeQuotas()
    people = caring(broker, quotas)
    await people.handoffs.open(Caller(SessionKey("t", "a")), "requested", "en", ())
    await answered_from_the_faq(people, "a", times=6)
    await answered_from_the_faq(people, "b")
    assert quotas.handoffs == [("t", "requested"), ("t", "fallbacks")]
    assert [record.key for record in broker.records] == [b"t/a", b"t/b"]


async def test_a_hand_off_that_meets_an_internal_fault_is_reported_as_failed() -> None:
    """Both the customer who asked in words and the one who pressed the button get a reply."""

    class Faulty:
        async def open(self, *_: object) -> None:
            raise RuntimeError("a fault of our own")

    handoffs: Any = Faulty()
    quotas: Any = FakeQuotas()
    people = People(
        settings=HandoffSettings(enabled=True),
        handoffs=handoffs,
        quotas=quotas,
        bad_answers=quotas,
        history=quotas,
        log=idle_log(),
    )
    edge = Edge()
    client = await edge.connect().say(SessionStart(session_id="s"))
    with capture_logs():
        people.receive(client, HandoffRequest(event_id="h"))
        await quiet()
    assert [message.error.code for message in client.heard if isinstance(message, ErrorEvent)] == ["handoff_failed"]


async def test_no_person_is_promised_without_people() -> None:
    """By default the words are a normal question, and no hand-off is made of them or of fallbacks."""
    assert not Settings().handoff.enabled
    broker = Broker()
    quotas: Any = FakeQuotas()
    people = People(
        settings=Settings().handoff,
        handoffs=made(broker, Store()),
        quotas=quotas,
        bad_answers=quotas,
        history=quotas,
        log=idle_log(),
    )
    await answered_from_the_faq(people, "a", times=3)
    asked = make_entry(input="Can I talk to a human?")
    assert await people.answer_wish(asked, lambda _: None, Caller(SessionKey("t", "a"))) is None
    assert broker.records == []


@pytest.mark.parametrize("consent", [None, Consent(), Consent(training=True)])
async def test_a_bad_answer_is_stored_only_with_consent_to_training(consent: Consent | None) -> None:
    noted: list[tuple[str, bool]] = []

    class Kept:
        def record_rating(self, caller: Caller, feedback: Feedback, *, helped: bool, consented_unix_ms: float) -> None:
            noted.append((feedback.response_id, helped))

    kept: Any = Kept()
    handoffs: Any = object()
    quotas: Any = FakeQuotas()
    people = People(
        settings=HandoffSettings(), handoffs=handoffs, quotas=quotas, bad_answers=kept, history=quotas, log=idle_log()
    )
    client = await Edge().connect().say(SessionStart(session_id="s", consent=consent))
    people.answers.answered(client.session.key, answer("resp_1"))
    people.receive(client, Feedback(response_id="resp_1", rating="down"))
    people.receive(client, Feedback(response_id="resp_1", rating="up"))
    trains = consent is not None and consent.training
    assert noted == ([("resp_1", False), ("resp_1", True)] if trains else [])
