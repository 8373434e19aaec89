"""What the gateway makes of what clients, workers and the clock do, one after the other or in one breath."""

import asyncio

import pytest
from gateways import MINUTE_MS, TOPICS, Edge, FakeConnection, delta, done, quiet, until

from gateway import gateway as module
from gateway.cursor import CursorKey, Place, Told, checksum, digest_of, response_id
from gateway.entry import Entry
from shared.clock import now_unix_ms
from shared.messages import (
    ErrorEvent,
    ResponseCancel,
    ResponseCreate,
    ResponseDelta,
    Resume,
    SessionDelete,
    SessionDeleted,
    SessionStart,
)
from shared.topics import BROADCAST_PARTITION

START = SessionStart(session_id="s")
QUESTION = "How do I return an item?"


@pytest.fixture
def edge() -> Edge:
    return Edge()


def asks(event_id: str) -> ResponseCreate:
    return ResponseCreate(event_id=event_id, input=QUESTION)


def entry_of(edge: Edge, event_id: str) -> Entry:
    found = edge.gateway.inflight.find("demo", "s", event_id)
    assert found is not None
    return found


def name_of(event_id: str) -> str:
    return response_id("demo", "s", event_id, QUESTION)


# --- a conversation is erased


async def test_an_erasure_counts_from_the_moment_at_which_it_is_asked_for(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one breath, within one millisecond: what was asked before is cancelled; what is asked after is answered, and
    can be remembered."""
    now = now_unix_ms()
    monkeypatch.setattr(module, "now_unix_ms", lambda: now)
    client = await edge.connect().say(START, asks("before"), SessionDelete(), asks("after"))
    await quiet()
    assert [(end.id, end.status) for end in client.ends] == [(name_of("before"), "cancelled")]
    assert any(isinstance(message, SessionDeleted) for message in client.heard)
    after = entry_of(edge, "after")
    edge.gateway.replied([done(after.response_id, "Within 30 days.")])
    assert client.ends[-1].output_text == "Within 30 days."
    assert edge.history.erased_unix_ms < int(after.received_unix_ms)


async def answered(edge: Edge) -> FakeConnection:
    """A client that lost its socket in the middle of an answer, which has ended since."""
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.gateway.replied([delta(name_of("e"), "Within 30")])
    client.lose()
    edge.gateway.replied([done(name_of("e"), "Within 30 days.")])
    return client


async def test_who_comes_back_is_told_the_rest_of_what_nobody_has_erased(edge: Edge) -> None:
    client = await answered(edge)
    back = await edge.connect().say(SessionStart(session_id="s", resume=Resume(cursor=client.cursor)))
    assert [message.delta for message in back.heard if isinstance(message, ResponseDelta)] == [" days."]
    assert [end.output_text for end in back.ends] == ["Within 30 days."]


async def test_text_that_is_held_is_not_told_again_once_another_gateway_has_erased_it(edge: Edge) -> None:
    client = await answered(edge)
    edge.history.erased_unix_ms = now_unix_ms()
    back = await edge.connect().say(SessionStart(session_id="s", resume=Resume(cursor=client.cursor)))
    await quiet()
    assert [(end.status, end.output_text) for end in back.ends] == [("cancelled", "")]
    assert not any(isinstance(message, ResponseDelta) for message in back.heard)


async def test_an_answer_that_is_still_written_ends_where_another_gateway_has_erased_its_conversation(
    edge: Edge,
) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.gateway.replied([delta(name_of("e"), "Within 30")])
    client.lose()
    edge.history.erased_unix_ms = now_unix_ms()
    back = await edge.connect().say(SessionStart(session_id="s", resume=Resume(cursor=client.cursor)))
    await quiet()
    assert [(end.status, end.output_text) for end in back.ends] == [("cancelled", "")]
    assert name_of("e") in edge.cancelled
    assert back.num_inflight == len(edge.gateway.inflight) == 0


async def test_a_question_asked_again_after_another_gateway_has_erased_it_is_a_new_one(edge: Edge) -> None:
    await answered(edge)
    edge.history.erased_unix_ms = now_unix_ms()
    back = await edge.connect().say(START, asks("e"))
    await quiet()
    assert not back.ends
    assert len(edge.producer.of(TOPICS.requests("short"))) == 2


# --- an answer is adopted


async def adopting(edge: Edge, *, text: str = "", soft_ms: int = 0, asked_ms_ago: int = 1_000) -> FakeConnection:
    """A client that comes with an answer which another gateway began, and has so much of it. Its soft deadline comes
    that long from now."""
    now = int(now_unix_ms())
    told = Told(
        digest=digest_of(name_of("e")),
        event_id="e",
        bucket="short",
        received_unix_ms=now - asked_ms_ago,
        first_token_ms=asked_ms_ago + soft_ms,
        deadline_ms=MINUTE_MS,
        log=Place(1, 0),
        request=Place(0, 7),
        chars=len(text),
        crc=checksum(text),
    )
    cursor = CursorKey(b"secret").seal("demo", "s").write([told])
    client = await edge.connect().say(SessionStart(session_id="s", resume=Resume(cursor=cursor)))
    await quiet()
    return client


async def test_whoever_asks_again_too_late_for_the_first_token_hears_from_the_faq_at_once(edge: Edge) -> None:
    """Another gateway has shown text, of which nothing stands in the log, and the hard deadline is a minute away."""
    client = await adopting(edge, text="Within", soft_ms=-500)
    assert not client.ends
    await client.say(asks("e"))
    await until(lambda: client.ends, limit_s=0.5)  # by itself the alarm rings after a second
    assert [end.source for end in client.ends] == ["faq"]


async def test_the_question_of_an_adopted_request_is_there_before_its_deadline(edge: Edge) -> None:
    """Its record may be long in coming, and the deadline waits for nobody."""
    edge.questions.stands = "When does delivery come?"
    client = await adopting(edge, soft_ms=MINUTE_MS)
    assert entry_of(edge, "e").input == "When does delivery come?"
    assert not client.ends


async def test_of_an_answer_that_has_begun_in_the_log_nobody_reads_the_question(edge: Edge) -> None:
    edge.questions.stands = "When does delivery come?"
    edge.follower.stands = [delta(name_of("e"), "Within 30")]
    await adopting(edge, text="Within", soft_ms=MINUTE_MS)
    assert entry_of(edge, "e").text == "Within 30"
    assert not entry_of(edge, "e").input


async def test_while_the_question_is_read_the_worker_may_still_answer_it(edge: Edge) -> None:
    """The soft deadline has come and the FAQ is to answer; then the log has text after all."""
    edge.questions.come.clear()
    client = await adopting(edge, soft_ms=-1)
    await until(lambda: entry_of(edge, "e").fallback)
    await quiet()
    edge.gateway.replied([delta(name_of("e"), "Within 30")])
    edge.questions.come.set()
    await quiet()
    assert edge.cancelled == []
    assert not client.ends
    assert entry_of(edge, "e").fallback is None
    edge.gateway.replied([done(name_of("e"), "Within 30 days.")])
    await quiet()
    assert [(end.source, end.output_text) for end in client.ends] == [("model", "Within 30 days.")]
    assert edge.cancelled == []


async def test_a_question_that_is_asked_again_while_it_is_read_is_not_forgotten(edge: Edge) -> None:
    edge.questions.come.clear()
    client = await adopting(edge, soft_ms=-1)
    await until(lambda: entry_of(edge, "e").fallback)
    await client.say(asks("e"))
    edge.questions.come.set()
    await until(lambda: client.ends)
    assert [end.source for end in client.ends] == ["faq"]


async def test_at_the_last_moment_no_question_is_waited_for(edge: Edge) -> None:
    """Its record cannot be read; the answer's end is due all the same."""
    edge.questions.come.clear()
    await adopting(edge, soft_ms=MINUTE_MS)
    entry, question = entry_of(edge, "e"), edge.gateway.resumption.question
    waiting = asyncio.ensure_future(question(entry, entry.latest_unix_ms - 10_000))
    at_once = asyncio.ensure_future(question(entry, entry.latest_unix_ms))
    await quiet()
    assert (at_once.done(), waiting.done()) == (True, False)
    assert await at_once == ""
    edge.questions.come.set()
    await waiting


async def test_once_the_faq_has_answered_the_worker_is_told_to_stop(edge: Edge) -> None:
    edge.questions.come.clear()
    client = await adopting(edge, soft_ms=-1)
    await until(lambda: entry_of(edge, "e").fallback)
    await quiet()
    assert edge.cancelled == []
    edge.questions.come.set()
    await quiet()
    assert [end.source for end in client.ends] == ["busy"], "there is no question to look up"
    assert edge.cancelled == [name_of("e")]


async def test_while_kafka_is_known_to_be_away_the_faq_answers_at_once(edge: Edge) -> None:
    """No deadline is waited for."""
    edge.kafka_is_away = True
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    assert [end.source for end in client.ends] == ["faq"]
    assert entry_of(edge, "e").fallback == "broker"
    assert edge.producer.published == []


# --- a client does not want an answer any more


@pytest.mark.parametrize("named", ["response_id", "target_event_id"])
async def test_a_cancel_that_comes_just_after_the_end_is_no_error(edge: Edge, named: str) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.gateway.replied([done(name_of("e"), "Within 30 days.")])
    await client.say(ResponseCancel(**{named: name_of("e") if named == "response_id" else "e"}))
    assert [end.status for end in client.ends] == ["completed"]
    assert not any(isinstance(message, ErrorEvent) for message in client.heard)


async def test_what_every_worker_is_to_hear_is_written_where_every_worker_reads(edge: Edge) -> None:
    """Whatever number of partitions the topic has by now."""
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    await client.say(ResponseCancel(target_event_id="e"), SessionDelete())
    await quiet()
    assert [record.partition for record in edge.producer.of(TOPICS.cancels)] == [BROADCAST_PARTITION] * 2


@pytest.mark.parametrize("event_id", ["never", None])
async def test_a_cancel_of_nothing_is_an_error_of_what_it_named(edge: Edge, event_id: str | None) -> None:
    client = await edge.connect().say(START, ResponseCancel(response_id="resp_never", target_event_id=event_id))
    (error,) = [message for message in client.heard if isinstance(message, ErrorEvent)]
    assert (error.error.code, error.event_id) == ("unknown_response", event_id)
