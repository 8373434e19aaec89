"""A conversation is erased, here or elsewhere: none of it is sent again, and later questions are answered."""

import asyncio
from typing import Any

import msgspec
import pytest
from prometheus_client import REGISTRY

from gateway.request.entry import response_id
from shared.conversation.journal import Journalled
from shared.errors import BrokerUnavailable
from shared.process.clock import now_unix_ms
from shared.wire.codec import decode_forgotten
from shared.wire.messages import (
    ClientMessage,
    Consent,
    Erase,
    ErrorEvent,
    ReplyDone,
    ResponseCreate,
    ResponseDelta,
    Resume,
    SessionDelete,
    SessionDeleted,
    SessionStart,
)
from shared.wire.session_key import SessionKey
from tests.support.fakes.gateways import TOPICS, Edge, FakeConnection, delta, done, entry_of, quiet, until

START = SessionStart(session_id="s")
QUESTION = "How do I return an item?"
SESSION = SessionKey("demo", "s")


@pytest.fixture
def edge() -> Edge:
    return Edge()


def asks(event_id: str) -> ResponseCreate:
    return ResponseCreate(event_id=event_id, input=QUESTION)


def name_of(event_id: str, generation: int = 0) -> str:
    return response_id(SessionKey("demo", "s"), event_id, QUESTION, generation)


def but(end: ReplyDone, **changed: Any) -> ReplyDone:
    return msgspec.structs.replace(end, **changed)


def ends(client: FakeConnection) -> list[tuple[str, str]]:
    return [(end.status, end.output_text) for end in client.ends]


def deltas(client: FakeConnection) -> list[str]:
    return [message.delta for message in client.heard if isinstance(message, ResponseDelta)]


def dropped(why: str) -> float:
    return REGISTRY.get_sample_value("replyline_gateway_replies_dropped_total", {"why": why}) or 0.0


def comes_back(client: FakeConnection) -> SessionStart:
    return SessionStart(session_id="s", resume=Resume(cursor=client.cursor))


async def test_an_erasure_counts_from_the_moment_of_its_request(edge: Edge) -> None:
    """In the same turn: earlier questions are cancelled; later ones belong to the new conversation."""
    client = await edge.connect().say(START, asks("before"), SessionDelete(), asks("after"))
    await quiet()
    assert [(end.id, end.status) for end in client.ends] == [(name_of("before"), "cancelled")]
    assert any(isinstance(message, SessionDeleted) for message in client.heard)
    generation = edge.history.generations[SESSION]
    assert (edge.asked[-1].id, edge.asked[-1].generation) == (name_of("after", generation), generation)
    edge.receive_replies([done(name_of("after", generation), "Within 30 days.")])
    assert client.ends[-1].output_text == "Within 30 days."


async def test_later_replies_of_the_first_computation_do_not_answer_the_second(edge: Edge) -> None:
    """The same event with the same text: its replies bear the id that it had in the conversation that was erased."""
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([delta(name_of("e"), "A secret")])
    await client.say(SessionDelete(), asks("e"))
    await quiet()
    heard, counted = len(client.heard), dropped("erased")
    edge.receive_replies([delta(name_of("e"), " is", 8), done(name_of("e"), "A secret is told.")])
    assert client.heard[heard:] == []
    assert dropped("erased") == counted + 2
    edge.receive_replies([done(entry_of(edge, "e").response_id, "Within 30 days.")])
    assert ends(client) == [("cancelled", "A secret"), ("completed", "Within 30 days.")]


async def test_a_cancelled_answer_is_logged_without_its_text(edge: Edge) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([delta(name_of("e"), "A secret")])
    await client.say(SessionDelete())
    await quiet()
    (written,) = edge.producer.of(TOPICS.replies)
    assert b"cancelled" in (written.value or b"")
    assert b"secret" not in (written.value or b"")


async def test_a_reply_of_another_session_is_dropped(edge: Edge) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    heard, counted = len(client.heard), dropped("session")
    edge.receive_replies([but(done(name_of("e"), "Another's."), session_id="t")])
    assert client.heard[heard:] == []
    assert dropped("session") == counted + 1


async def test_without_redis_nothing_is_erased_and_nothing_ends(edge: Edge) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.history.away = True
    await client.say(SessionDelete())
    await quiet()
    errors = [message.error.code for message in client.heard if isinstance(message, ErrorEvent)]
    assert errors == ["history_unavailable"]
    assert not any(isinstance(message, SessionDeleted) for message in client.heard)
    edge.receive_replies([done(name_of("e"), "Within 30 days.")])
    assert ends(client) == [("completed", "Within 30 days.")]


@pytest.mark.parametrize("before", [0, 7])
@pytest.mark.parametrize("behind_ms", [0, 5_000, 60_000])
async def test_a_question_asked_while_redis_is_away_ends_with_its_erasure_whatever_the_clocks(
    edge: Edge, before: int, behind_ms: int
) -> None:
    """The gateway that erases the conversation may date the erasure before the question. `before` is the generation
    that an earlier erasure in the log began."""
    if before:
        edge.erased(Erase(tenant="demo", session_id="s", generation=before))
    edge.history.away = True
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    assert [(asked.id, asked.generation) for asked in edge.asked] == [(name_of("e", before), before)]
    edge.erased(Erase(tenant="demo", session_id="s", generation=int(now_unix_ms()) - behind_ms))
    edge.receive_replies([done(name_of("e", before), "Within 30 days.")])
    assert ends(client) == [("cancelled", "")]


async def test_an_old_erasure_in_the_log_counts_while_redis_is_away(edge: Edge) -> None:
    """It was written before this gateway began to read."""
    edge.serving.erasing.log.load([(0, Erase(tenant="demo", session_id="s", generation=7))], 0)
    edge.history.away = True
    await edge.connect().say(START, asks("e"))
    await quiet()
    assert [asked.generation for asked in edge.asked] == [7]


async def test_requests_and_replies_name_the_generation(edge: Edge) -> None:
    """It is later than the one in Redis, for any clock."""
    edge.history.generations[SESSION] = ahead = int(now_unix_ms()) + 60_000
    client = await edge.connect().say(START, SessionDelete())
    await quiet()
    assert edge.told_all == [Erase(tenant="demo", session_id="s", generation=ahead + 1)]
    assert edge.history.generations[SESSION] == ahead + 1
    assert any(isinstance(message, SessionDeleted) for message in client.heard)


# --- erased at another gateway


async def answered(edge: Edge) -> FakeConnection:
    """A client that lost its socket in the middle of an answer, which has ended since."""
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([delta(name_of("e"), "Within 30")])
    client.lose()
    edge.receive_replies([done(name_of("e"), "Within 30 days.")])
    return client


def erased(edge: Edge) -> int:
    """The generation that Redis has begun."""
    edge.history.generations[SESSION] = generation = int(now_unix_ms())
    return generation


async def test_a_returning_client_gets_the_rest_of_answers_that_were_not_erased(edge: Edge) -> None:
    client = await answered(edge)
    back = await edge.connect().say(comes_back(client))
    assert deltas(back) == [" days."]
    assert ends(back) == [("completed", "Within 30 days.")]


async def test_erased_text_in_memory_is_not_sent_again(edge: Edge) -> None:
    client = await answered(edge)
    erased(edge)
    back = await edge.connect().say(comes_back(client))
    await quiet()
    assert (ends(back), deltas(back)) == ([("cancelled", "")], [])


async def test_a_running_erased_answer_ends_when_its_client_returns(edge: Edge) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([delta(name_of("e"), "Within 30")])
    client.lose()
    erased(edge)
    back = await edge.connect().say(comes_back(client))
    await quiet()
    assert ends(back) == [("cancelled", "")]
    assert name_of("e") in edge.cancelled
    assert back.num_inflight == len(edge.gateway.inflight) == 0


async def test_a_running_answer_ends_when_its_erasure_is_received(edge: Edge) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([delta(name_of("e"), "Within 30")])
    edge.erased(Erase(tenant="demo", session_id="s", generation=erased(edge)))
    edge.receive_replies([delta(name_of("e"), " days.", 9), done(name_of("e"), "Within 30 days.")])
    assert (ends(client), deltas(client)) == ([("cancelled", "Within 30")], ["Within 30"])


async def test_a_received_erasure_is_known_after_redis_has_forgotten_it(edge: Edge) -> None:
    client = await answered(edge)
    generation = erased(edge)
    edge.erased(Erase(tenant="demo", session_id="s", generation=generation))
    edge.history.generations.clear()
    back = await edge.connect().say(comes_back(client), asks("e"))
    await quiet()
    assert (ends(back), deltas(back)) == ([("cancelled", "")], [])
    assert edge.asked[-1].id == name_of("e", generation)


async def test_a_question_asked_again_is_a_new_one_and_the_erased_answer_in_the_cursor_stays_one(edge: Edge) -> None:
    client = await answered(edge)
    generation = erased(edge)
    await edge.connect().say(START, asks("e"))
    await quiet()
    assert [asked.id for asked in edge.asked] == [name_of("e"), name_of("e", generation)]
    back = await edge.connect().say(comes_back(client), asks("e"))
    await quiet()
    assert ends(back) == [("cancelled", "")]
    edge.receive_replies([done(name_of("e", generation), "Within 30 days.")])
    assert ends(back) == [("cancelled", ""), ("completed", "Within 30 days.")]
    assert len(edge.asked) == 2


async def test_another_conversations_erasure_or_an_older_one_ends_nothing(edge: Edge) -> None:
    generation = erased(edge)
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    for session_id, told in (("t", generation + 1), ("s", generation), ("s", generation - 1)):
        edge.erased(Erase(tenant="demo", session_id=session_id, generation=told))
    edge.receive_replies([done(name_of("e", generation), "Within 30 days.")])
    assert ends(client) == [("completed", "Within 30 days.")]


# --- cancelled by a client or another gateway


async def test_a_workers_cancelled_end_alone_ends_nothing(edge: Edge) -> None:
    """It belongs to an earlier cancel: of this gateway's previous process, or of another, which writes to the log
    itself.
    """
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    heard = len(client.heard)
    edge.receive_replies([but(done(name_of("e"), ""), status="cancelled", reason="client")])
    assert client.heard[heard:] == []
    edge.receive_replies([done(name_of("e"), "Within 30 days.")])
    assert ends(client) == [("completed", "Within 30 days.")]


def forgotten(edge: Edge) -> list[tuple[bytes | None, str]]:
    return [(record.key, decode_forgotten(record.value).person) for record in edge.producer.of(TOPICS.forgotten)]


async def test_an_erasure_is_logged_by_its_digest_for_as_long_as_copies_may_live(edge: Edge) -> None:
    await edge.connect().say(START, SessionDelete())
    await quiet()
    assert forgotten(edge) == [(SESSION.digest.encode(), SESSION.digest)]
    (record,) = edge.producer.of(TOPICS.forgotten)
    assert decode_forgotten(record.value).unix_ms == edge.history.generations[SESSION]


@pytest.mark.parametrize(
    ("consent", "kept", "withdraws"),
    [
        (None, True, True),
        (Consent(), True, True),
        (Consent(), False, True),  # data learned from it may be older than what Redis keeps
        (None, False, False),
        (Consent(training=True), True, False),
    ],
)
async def test_a_returning_conversation_without_consent_withdraws_it(
    edge: Edge, consent: Consent | None, kept: bool, withdraws: bool
) -> None:
    edge.bad_answers.kept = {SESSION} if kept else set()
    before = int(now_unix_ms())
    await edge.connect().say(SessionStart(session_id="s", consent=consent))
    await quiet()
    assert forgotten(edge) == ([(SESSION.digest.encode(), SESSION.digest)] if withdraws else [])
    assert all(decode_forgotten(each.value).unix_ms >= before for each in edge.producer.of(TOPICS.forgotten))
    assert (SESSION in edge.bad_answers.kept) == (kept and not withdraws)
    assert edge.told_all == [], "the conversation itself continues"


async def test_a_new_conversation_withdraws_nothing(edge: Edge) -> None:
    await edge.connect().say(SessionStart(consent=Consent()))
    await quiet()
    assert forgotten(edge) == []


@pytest.mark.parametrize("away", ["redis", "kafka"])
async def test_a_withdrawal_that_is_asked_for_and_fails_is_an_error(edge: Edge, away: str) -> None:
    edge.bad_answers.kept = {SESSION}
    edge.bad_answers.away, edge.kafka_is_away = away == "redis", away == "kafka"
    client = await edge.connect().say(SessionStart(session_id="s", consent=Consent()))
    await quiet()
    errors = [message.error.code for message in client.heard if isinstance(message, ErrorEvent)]
    assert errors == ["history_unavailable"]
    assert edge.bad_answers.kept == {SESSION}, "the next return tries again"


async def hangs(*_: object) -> None:
    """A stopped broker acknowledges nothing and refuses nothing."""
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "said",
    [(START, SessionDelete()), (SessionStart(session_id="s", consent=Consent()),)],
    ids=["erasure", "withdrawal"],
)
async def test_erasure_that_kafka_does_not_acknowledge_is_an_error(
    edge: Edge, said: tuple[ClientMessage, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kafka.producer.ACKNOWLEDGED_WITHIN_S", 0.0)
    monkeypatch.setattr(edge.producer, "publish", hangs)
    client = edge.connect()
    for message in said:
        await client.say(message)
    await until(lambda: any(isinstance(message, ErrorEvent) for message in client.heard))
    errors = [message.error for message in client.heard if isinstance(message, ErrorEvent)]
    assert [(error.code, error.retryable) for error in errors] == [("history_unavailable", True)]


async def test_erasure_of_an_edge_that_kafka_does_not_acknowledge_fails(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shared.kafka.producer.ACKNOWLEDGED_WITHIN_S", 0.0)
    monkeypatch.setattr(edge.producer, "publish", hangs)
    with pytest.raises(BrokerUnavailable):
        await edge.gateway.erasing.erase_for_edge(SESSION, Journalled(session_id=SESSION.session_id, erased=1))
