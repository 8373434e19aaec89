"""The gateway's handling of clients, workers and timers, one after the other or in the same turn of the loop."""

import asyncio

import pytest

from gateway.request import answer as answers
from gateway.request.cursor import CursorKey, Place, checksum
from gateway.request.entry import Entry, response_id
from gateway.request.replies import add_delta
from gateway.session.connection import put_all
from shared.kafka.producer import partition_of
from shared.process.clock import now_unix_ms
from shared.wire.messages import (
    Adopt,
    Cancel,
    ErrorEvent,
    ResponseCancel,
    ResponseCreate,
    ResponseCreated,
    Resume,
    Said,
    SessionCreated,
    SessionDelete,
    SessionStart,
)
from shared.wire.session_key import SessionKey
from shared.wire.topics import BROADCAST_PARTITION
from tests.support.builders.gateway import report, told
from tests.support.fakes.gateway_services import FakeProducer
from tests.support.fakes.gateways import (
    LONG,
    MINUTE_MS,
    TOPICS,
    Edge,
    FakeConnection,
    SlowTokenizer,
    delta,
    done,
    entry_of,
    quiet,
    until,
)

START = SessionStart(session_id="s")
QUESTION = "How do I return an item?"


@pytest.fixture
def edge() -> Edge:
    return Edge()


def asks(event_id: str) -> ResponseCreate:
    return ResponseCreate(event_id=event_id, input=QUESTION)


def recalled(entry: Entry) -> bool:
    assert entry.adoption is not None
    return entry.deadline is entry.request.deadline


def name_of(event_id: str) -> str:
    return response_id(SessionKey("demo", "s"), event_id, QUESTION)


async def test_an_internal_fault_ends_only_its_own_answer_immediately(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await edge.connect().say(START, asks("first"))
    await quiet()
    with monkeypatch.context() as patch:
        patch.setattr(edge.producer, "enqueue", lambda _: 1 / 0)
        await client.say(asks("second"))
        await quiet()
    assert [(end.status, end.reason) for end in client.ends] == [("failed", "internal")]
    edge.receive_replies([done(name_of("first"), "Within 30 days.")])
    assert (client.ends[-1].status, client.num_inflight, len(edge.gateway.inflight)) == ("completed", 0, 0)


# --- which worker gets it


async def test_a_session_is_admitted_by_the_worker_that_gets_its_request() -> None:
    """One worker has no time before the deadline; it gets one probe all the same."""
    edge = Edge(FakeProducer(partitions=2), admits=True)
    for number, first_token_ms in enumerate((10.0 * MINUTE_MS, 50.0)):
        now = int(now_unix_ms())
        reads = report(f"w{number}", unix_ms=now, running=0, first_token_ms=first_token_ms, partitions=(number,))
        edge.serving.admission_gate.update_worker(reads.worker_id, reads)
    sessions = [f"s{number}" for number in range(8)]
    for session in sessions:
        await edge.connect().say(SessionStart(session_id=session), asks("e"))
    await quiet()
    sent = edge.producer.of(TOPICS.requests("short"))
    assert all(record.partition == partition_of(record.key or b"", 2) for record in sent)
    at_the_idle = [
        key for key in (SessionKey("demo", session).record_key for session in sessions) if partition_of(key, 2)
    ]
    assert 0 < len(at_the_idle) < len(sessions)
    assert [record.key for record in sent if record.partition == 1] == at_the_idle
    assert len(sent) == len(at_the_idle) + 1


# --- an answer is adopted


async def adopting(edge: Edge, *, text: str = "", soft_ms: int = 0, asked_ms_ago: int = 1_000) -> FakeConnection:
    """Return a client with an answer that another gateway began, at this position. Its soft deadline is
    in `soft_ms`."""
    answer = told(
        digest=bytes.fromhex(name_of("e").removeprefix("resp_")),
        received_unix_ms=int(now_unix_ms()) - asked_ms_ago,
        first_token_ms=asked_ms_ago + soft_ms,
        deadline_ms=MINUTE_MS,
        log=Place(1, 0),
        place=Place(0, 7),
        chars=len(text),
        crc=checksum(text),
    )
    cursor = CursorKey(b"secret").seal(SessionKey("demo", "s")).write([answer])
    client = await edge.connect().say(SessionStart(session_id="s", resume=Resume(cursor=cursor)))
    await quiet()
    return client


async def test_a_repeated_question_too_late_for_the_first_token_gets_the_faq_immediately(edge: Edge) -> None:
    """Another gateway has shown text that is not in the log, and the hard deadline is a minute away."""
    client = await adopting(edge, text="Within", soft_ms=-500)
    assert not client.ends
    await client.say(asks("e"))
    await until(lambda: client.ends, limit_s=0.5)  # by itself the alarm rings after a second
    assert [end.source for end in client.ends] == ["faq"]


async def test_the_question_of_an_adopted_request_is_read_before_its_deadline(edge: Edge) -> None:
    """Its record may arrive late, and the deadline does not wait for it."""
    edge.questions.stands = "When does delivery come?"
    client = await adopting(edge, soft_ms=MINUTE_MS)
    assert entry_of(edge, "e").input == "When does delivery come?"
    assert not client.ends


async def test_the_question_is_not_read_again_when_the_log_has_its_answer(edge: Edge) -> None:
    edge.questions.stands = "When does delivery come?"
    edge.follower.stands = [delta(name_of("e"), "Within 30")]
    await adopting(edge, text="Within", soft_ms=MINUTE_MS)
    assert entry_of(edge, "e").answer.text == "Within 30"
    assert not entry_of(edge, "e").input


async def test_an_answer_taken_over_by_a_lower_rung_continues_where_its_client_resumes(edge: Edge) -> None:
    """In the log the champion's end without text comes before the light model's text."""
    name = name_of("e")
    given_up = done(name, "", status="incomplete", reason="infeasible")
    edge.follower.stands = [given_up, delta(name, "Within 30"), done(name, "Within 30 days.")]
    client = await adopting(edge, text="Within", soft_ms=MINUTE_MS)
    assert [end.output_text for end in client.ends] == ["Within 30 days."]


async def test_the_worker_may_still_answer_while_the_question_is_read(edge: Edge) -> None:
    """At the soft deadline the FAQ is to answer; then the log has text after all."""
    edge.questions.come.clear()
    client = await adopting(edge, soft_ms=-1)
    await until(lambda: entry_of(edge, "e").answer.fallback)
    await quiet()
    edge.receive_replies([delta(name_of("e"), "Within 30")])
    edge.questions.come.set()
    await quiet()
    assert edge.cancelled == []
    assert not client.ends
    assert entry_of(edge, "e").answer.fallback is None
    edge.receive_replies([done(name_of("e"), "Within 30 days.")])
    await quiet()
    assert [(end.source, end.output_text) for end in client.ends] == [("model", "Within 30 days.")]
    assert edge.cancelled == []


async def test_a_question_repeated_during_its_read_is_not_forgotten(edge: Edge) -> None:
    edge.questions.come.clear()
    client = await adopting(edge, soft_ms=-1)
    await until(lambda: entry_of(edge, "e").answer.fallback)
    await client.say(asks("e"))
    edge.questions.come.set()
    await until(lambda: client.ends)
    assert [end.source for end in client.ends] == ["faq"]


async def test_at_the_last_moment_no_question_is_waited_for(edge: Edge) -> None:
    """Its record cannot be read; the answer's end is due all the same."""
    edge.questions.come.clear()
    await adopting(edge, soft_ms=MINUTE_MS)
    entry, question = entry_of(edge, "e"), edge.gateway.resuming.recall.question
    assert entry.adoption is not None
    latest = entry.adoption.latest_unix_ms
    waiting = asyncio.ensure_future(question(entry, latest - 10_000))
    at_once = asyncio.ensure_future(question(entry, latest))
    await quiet()
    assert (at_once.done(), waiting.done()) == (True, False)
    assert await at_once == ""
    edge.questions.come.set()
    await waiting


async def test_after_the_faqs_answer_the_worker_gets_a_cancel(edge: Edge) -> None:
    edge.questions.come.clear()
    client = await adopting(edge, soft_ms=-1)
    await until(lambda: entry_of(edge, "e").answer.fallback)
    await quiet()
    assert edge.cancelled == []
    edge.questions.come.set()
    await quiet()
    assert [end.source for end in client.ends] == ["busy"], "there is no question to look up"
    stopped = [told for told in edge.notices if isinstance(told, Cancel)]
    assert {told.request_id for told in stopped} == {name_of("e")}
    assert {told.reply_partition for told in stopped} == {0, 1}, "it may be written for both"


async def test_the_worker_that_has_an_answer_redirects_it_and_the_log_is_not_read() -> None:
    edge = Edge(word_s=0.05)
    edge.follower.stands = [delta(name_of("e"), "Within 30 days of that")]
    client = await adopting(edge, text="Within", soft_ms=MINUTE_MS)
    (told,) = edge.notices
    entry = entry_of(edge, "e")
    assert told == Adopt(request_id=name_of("e"), reply_partition=0, created_unix_ms=entry.request.asked_unix_ms)
    edge.receive_replies([delta(name_of("e"), "Within 30 ")])
    await until(lambda: recalled(entry))
    assert (entry.answer.text, entry.input) == ("Within 30 ", "")
    edge.receive_replies([delta(name_of("e"), "days.", 10), done(name_of("e"), "Within 30 days.")])
    assert [end.output_text for end in client.ends] == ["Within 30 days."]


@pytest.mark.parametrize(("heard", "text"), [(True, ""), (False, "Within 30 days")])
async def test_an_answer_that_no_worker_reports_is_read_from_the_log(heard: bool, text: str) -> None:
    """A worker without text yet reports too."""
    edge = Edge(word_s=0.05)
    edge.follower.stands = [delta(name_of("e"), "Within 30 days")]
    await adopting(edge, soft_ms=MINUTE_MS)
    edge.receive_replies([delta(name_of("e"), "")] if heard else [])
    await until(lambda: recalled(entry_of(edge, "e")))
    assert entry_of(edge, "e").answer.text == text


async def test_during_a_known_kafka_outage_the_faq_answers_immediately(edge: Edge) -> None:
    """No deadline is waited for."""
    edge.kafka_is_away = True
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    assert [end.source for end in client.ends] == ["faq"]
    assert entry_of(edge, "e").answer.fallback == "broker"
    assert edge.producer.published == []


SURE, UNSURE = "How long do I have to return something?", "Which moon is best for selling umbrellas?"


@pytest.mark.parametrize(
    ("text", "empty_ms", "worker", "admits", "by"),
    [
        (SURE, MINUTE_MS, False, True, ["faq"]),
        (UNSURE, MINUTE_MS, False, True, []),
        (SURE, MINUTE_MS, True, True, []),
        (SURE, MINUTE_MS / 2, False, True, []),
        (SURE, None, False, True, []),
        (SURE, MINUTE_MS, False, False, []),
    ],
    ids=["sure", "unsure", "a worker", "a worker a moment ago", "the gateway has just started", "no admission"],
)
async def test_while_no_worker_is_there_the_faq_answers_immediately_what_it_is_sure_of(
    text: str, empty_ms: float | None, worker: bool, admits: bool, by: list[str]
) -> None:
    """Any other question waits for a worker that may start, as long as its client allows."""
    edge = Edge(admits=admits)
    gate = edge.serving.admission_gate
    if empty_ms is not None:
        gate.forget_silent(now_unix_ms() - empty_ms)
    if worker:
        gate.update_worker("w", report("w"))
    client = await edge.connect().say(START, ResponseCreate(event_id="e", input=text))
    await quiet()
    await quiet()  # the end is published
    assert [end.source for end in client.ends] == by
    assert len(edge.asked) == (not by)
    assert gate.admissions.demand.asked()["champion"]["short"].requests == 1


@pytest.mark.parametrize("sign", ["???", "👍", "12345", "…"])
async def test_a_fallback_without_letters_is_in_the_conversations_language(edge: Edge, sign: str) -> None:
    """The turns sent with the question say which one that is, or else this gateway's answers before."""
    edge.kafka_is_away = True
    sent = ResponseCreate(event_id="c", input=sign, turns=(Said(user="怎么退货？", assistant="…"),))
    for asked in ([ResponseCreate(event_id="a", input="怎么退货？"), ResponseCreate(event_id="b", input=sign)], [sent]):
        client = await edge.connect().say(SessionStart(session_id=f"s{len(asked)}"), *asked)
        await quiet()
        assert client.ends[-1].output_text.startswith("抱歉，现在咨询的人较多")
    client = await edge.connect().say(SessionStart(session_id="new"), ResponseCreate(event_id="d", input="12345"))
    await quiet()
    assert client.ends[-1].output_text.startswith("Sorry, we are very busy")


# --- one question after the other


async def test_a_short_question_does_not_overtake_an_earlier_long_one(edge: Edge) -> None:
    """Which is counted on a thread. Another session does not wait for it."""
    counter = edge.serving.sending.token_count.tokenizer = SlowTokenizer()  # type: ignore[assignment]
    client = await edge.connect().say(START, ResponseCreate(event_id="long", input=LONG), asks("short"))
    other = await edge.connect().say(SessionStart(session_id="t"), asks("other"))
    await until(counter.asked.is_set)
    await quiet()
    assert [asked.session_id for asked in edge.asked] == ["t"]
    assert isinstance(other.heard[-1], ResponseCreated)
    counter.counted.set()
    await until(lambda: len(edge.asked) == 3)
    assert [asked.input for asked in edge.asked[1:]] == [LONG, QUESTION]
    await quiet()
    assert [message.event_id for message in client.heard if isinstance(message, ResponseCreated)] == ["long", "short"]


async def test_two_tabs_questions_are_sent_in_the_order_they_came_in(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if Redis answers the second tab before the first. Another conversation does not wait for it."""
    answers_first, read = asyncio.Event(), edge.history.generation
    waiting = []

    async def generation(key: SessionKey) -> int:
        if key.session_id == "s" and not waiting:
            waiting.append(key)
            await answers_first.wait()
        return await read(key)

    monkeypatch.setattr(edge.history, "generation", generation)
    tabs = [await edge.connect().say(START) for _ in range(2)]
    asking = [asyncio.ensure_future(tab.say(asks(f"tab-{at}"))) for at, tab in enumerate(tabs)]
    await edge.connect().say(SessionStart(session_id="t"), asks("other"))
    await until(lambda: any(asked.session_id == "t" for asked in edge.asked))
    await quiet()
    answers_first.set()
    await asyncio.gather(*asking)
    await until(lambda: len(edge.asked) == 3)
    names = [response_id(SessionKey("demo", "t"), "other", QUESTION), name_of("tab-0"), name_of("tab-1")]
    assert [asked.id for asked in edge.asked] == names


async def test_a_queued_question_is_still_answered_by_the_deadline(edge: Edge) -> None:
    counter = edge.serving.sending.token_count.tokenizer = SlowTokenizer()  # type: ignore[assignment]
    hasty = ResponseCreate(event_id="short", input=QUESTION, first_token_ms=1)
    client = await edge.connect().say(START, ResponseCreate(event_id="long", input=LONG), hasty)
    await until(lambda: client.ends)
    assert [(end.id, end.source) for end in client.ends] == [(name_of("short"), "faq")]
    counter.counted.set()
    await until(lambda: edge.asked)
    await quiet()
    assert [asked.input for asked in edge.asked] == [LONG]


# --- two sockets of one session


async def test_answers_that_go_from_socket_to_socket_leave_no_cursor_behind(edge: Edge) -> None:
    """However often clients do this, one cursor has every open answer, and a client resumes from it."""
    sockets = [await edge.connect().say(START) for _ in range(2)]
    for number in range(12):
        here, there = sockets[number % 2], sockets[(number + 1) % 2]
        await here.say(asks(f"e{number}"))
        await quiet()
        await there.say(asks(f"e{number}"))
        edge.receive_replies([done(name_of(f"e{number}"), "Yes.")] if number % 3 else [])
    for client in sockets:
        await client.say(asks("last"))
        await quiet()
        edge.receive_replies([delta(name_of("last"), "In ")])
        back = await edge.connect().say(SessionStart(session_id="s", resume=Resume(cursor=client.cursor)))
        assert [message.recovered for message in back.heard if isinstance(message, SessionCreated)] == [True]
        assert len(CursorKey(b"secret").seal(SessionKey("demo", "s")).read(client.cursor) or ()) <= 4


async def test_a_socket_takes_over_no_more_answers_than_it_may_ask_for(edge: Edge) -> None:
    first, second = [await edge.connect().say(START) for _ in range(2)]
    for number in range(6):
        await first.say(asks(f"e{number}"))
        await quiet()
        await second.say(asks(f"e{number}"))
    errors = [message for message in second.heard if isinstance(message, ErrorEvent)]
    assert [(error.event_id, error.error.code) for error in errors] == [
        ("e4", "too_many_inflight"),
        ("e5", "too_many_inflight"),
    ]
    assert (first.num_inflight, second.num_inflight) == (2, 4)


async def test_a_socket_that_an_answer_has_left_gets_no_more_of_it(edge: Edge) -> None:
    """Not even what waited for it to read."""
    slow, quick = [await edge.connect().say(START) for _ in range(2)]
    await slow.say(asks("e"))
    await quiet()
    put_all(slow, add_delta(entry_of(edge, "e"), delta(name_of("e"), "Within "), 0.0))
    heard = len(slow.heard)
    await quick.say(asks("e"))
    edge.receive_replies([done(name_of("e"), "Within 30 days.")])
    slow.flush()
    assert slow.heard[heard:] == []
    assert [end.output_text for end in quick.ends] == ["Within 30 days."]


# --- a client does not want an answer any more


@pytest.mark.parametrize("named", ["response_id", "target_event_id"])
async def test_a_cancel_directly_after_the_end_is_no_error(edge: Edge, named: str) -> None:
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([done(name_of("e"), "Within 30 days.")])
    await client.say(ResponseCancel(**{named: name_of("e") if named == "response_id" else "e"}))
    assert [end.status for end in client.ends] == ["completed"]
    assert not any(isinstance(message, ErrorEvent) for message in client.heard)


async def test_an_erasure_is_written_to_every_partition_and_a_cancel_to_the_workers() -> None:
    """The topics may have any number of partitions at that time."""
    edge = Edge(FakeProducer(partitions=3))
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    await client.say(ResponseCancel(target_event_id="e"), SessionDelete())
    await quiet()
    (request,), (cancel,), (erasure,) = map(
        edge.producer.of, (TOPICS.requests("short"), TOPICS.cancels, TOPICS.erasures)
    )
    assert (cancel.key, cancel.partition) == (request.key, request.partition) == (b"demo/s", partition_of(b"demo/s", 3))
    assert erasure.partition == BROADCAST_PARTITION


@pytest.mark.parametrize("event_id", ["never", None])
async def test_a_cancel_without_an_answer_is_an_error_that_names_its_id(edge: Edge, event_id: str | None) -> None:
    client = await edge.connect().say(START, ResponseCancel(response_id="resp_never", target_event_id=event_id))
    (error,) = [message for message in client.heard if isinstance(message, ErrorEvent)]
    assert (error.error.code, error.event_id) == ("unknown_response", event_id)


async def test_another_versions_complete_answer_is_sent_once_the_first_is_silent(
    edge: Edge, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answers, "_FLOWS_MS", 20.0)
    client = await edge.connect().say(START, asks("e"))
    await quiet()
    edge.receive_replies([delta(name_of("e"), "Yes, ", attempt=1, revision="new")])
    edge.receive_replies([done(name_of("e"), "No.", attempt=2, revision="old")])
    assert client.ends == []
    await until(lambda: client.ends)
    begun = [message for message in client.heard if isinstance(message, ResponseCreated)]
    assert (len(begun), client.ends[0].output_text, client.ends[0].revision) == (2, "No.", "old")
