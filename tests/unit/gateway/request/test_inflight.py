"""Each accepted request is answered once, and its client gets text in order, for any sequence of replies."""

import pytest
from msgspec import structs

from gateway.destination.destination import Destination
from gateway.request import replies
from gateway.request.answer import _FLOWS_MS, AnswerState
from gateway.request.entry import RequestTrace
from gateway.request.outbox import Opened, Shown
from shared.conversation.turn import Turn
from shared.tracing.context import TraceContext
from shared.wire.messages import ReplyDone
from shared.wire.outcome import ErrorDetail, Reason, Replaced, Response, Status, Timings
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import (
    FAQ,
    R1,
    Requests,
    created,
    delta,
    done,
    make_entry,
    name,
    publishing,
    texts,
    waiting,
)

# --- the usual way


def test_the_predicted_time_is_sent_with_response_created(table: Requests) -> None:
    entry = publishing(table)
    entry.publication.destination = Destination(bucket="medium", eta_ms=12.6)
    assert texts(entry.acknowledge()) == [structs.replace(created(), eta_ms=13)]


def test_an_answer_is_assured_then_shown_then_done(table: Requests) -> None:
    trace = RequestTrace(context=TraceContext(1, 2))
    entry = make_entry(soft=1_200, hard=2_000, received=1_000.0, trace=trace, bucket="medium")
    table.accept(entry)
    entry.answer.admit(1_005.12345)
    assert texts(entry.acknowledge()) == [created()]
    assert (entry.answer.state, entry.publication.published) == (AnswerState.WAITING, True)
    assert table.delta(delta("He"), 1_050.98765) == [Shown(R1, 0, "He")]
    assert table.delta(delta("y", 2), 1_060) == [Shown(R1, 2, "y")]
    assert trace.last_text_unix_ms == 1_060
    items = table.finish(entry, done("Hey you"), 1_090.55555)
    assert texts(items) == [(3, " you"), ("completed", "stop", "Hey you")]
    response = items[-1]
    assert isinstance(response, Response)
    assert (response.usage.output_tokens, response.model, response.source) == (3, "m", "model")
    assert response.timings == Timings(admission_ms=5.123, queue_ms=1.0, ttft_ms=50.988, total_ms=90.556)
    assert (len(table), entry.answer.done) == (0, True)


def test_a_fallback_answer_is_remembered_with_its_question(table: Requests) -> None:
    """With the time on the wire, and in the generation of the conversation that it was asked in."""
    entry = make_entry(received=7_000.5, clock_ms=60_000, generation=3)
    table.accept(entry)
    response = table.fall_back(entry, FAQ, 7_002.5)[-1]
    assert isinstance(response, Response)
    assert entry.turn(response) == Turn(
        request_id=R1,
        user="hi",
        output_text=FAQ.text,
        source="faq",
        timings=Timings(ttft_ms=2.0, total_ms=2.0),
        asked_unix_ms=67_000,
        grounding=FAQ.grounding,
        generation=3,
        origin="gateway",
    )


def test_a_request_that_is_refused_is_forgotten(table: Requests) -> None:
    entry = make_entry()
    table.accept(entry)
    table.refuse(entry)
    assert (len(table), table.find(SessionKey("t", "s"), "e1"), table.get(R1)) == (0, None, None)
    assert table.due_times.next_unix_ms() is None
    table.refuse(make_entry(2))  # nor is it known if a fault came before it was accepted
    assert table.find(SessionKey("t", "s"), "e2") is None


# --- replies and Kafka's acknowledgement cross


def test_replies_before_the_acknowledgement_wait_for_it(table: Requests) -> None:
    entry = publishing(table)
    assert table.delta(delta("He"), 1) == []
    assert table.delta(delta("y", 2), 2) == []
    assert texts(entry.acknowledge()) == [created(), (0, "Hey")]
    assert entry.answer.state is AnswerState.STREAMING
    assert table.delta(delta("!", 3), 3) == [Shown(R1, 3, "!")]


@pytest.mark.parametrize(
    ("end", "shown"),
    [
        (done("Hey"), [(0, "Hey"), ("completed", "stop", "Hey")]),
        (done("Good day", attempt=2), [(0, "Good day"), ("completed", "stop", "Good day")]),
        (None, [("cancelled", "client", "")]),
    ],
)
def test_an_end_before_the_acknowledgement_assures_the_answer_and_shows_no_half_text(
    table: Requests, end: ReplyDone | None, shown: list[object]
) -> None:
    """Nor that of another attempt, which no client saw. The acknowledgement adds nothing."""
    entry = publishing(table)
    table.delta(delta("He"), 1)
    items = table.cancel(entry, 2) if end is None else table.finish(entry, end, 2)
    assert texts(items) == [created(), *shown]
    assert entry.acknowledge() == []
    assert entry.publication.published


def test_a_fallback_before_the_acknowledgement_replaces_unseen_text(table: Requests) -> None:
    entry = publishing(table)
    table.delta(delta("He"), 1)
    items = table.fall_back(entry, FAQ, 2)
    assert texts(items) == [created(), (0, FAQ.text), ("completed", "stop", FAQ.text)]
    response = items[-1]
    assert isinstance(response, Response)
    assert (response.source, response.grounding, response.model) == ("faq", FAQ.grounding, None)
    assert response.timings.ttft_ms == 2.0


@pytest.mark.parametrize("origin", ["worker", "gateway"])
def test_the_replaced_lane_and_the_grounding_are_sent_with_the_end(table: Requests, origin: str) -> None:
    """From the worker's reply, or that of the gateway where an adopted answer began."""
    replaced = (Replaced(offset=0, length=4, id="g"),)
    end = done("Soon. Yes.", source="mixed", grounding=FAQ.grounding, replaced=replaced, origin=origin)
    response = table.finish(waiting(table), end, 2)[-1]
    assert isinstance(response, Response)
    assert (response.source, response.grounding, response.replaced) == ("mixed", FAQ.grounding, replaced)


def test_a_gateways_entry_is_a_fallback_and_a_workers_is_its_answer(table: Requests) -> None:
    for origin, stood_in in (("worker", False), ("gateway", True)):
        entry = waiting(table)
        table.finish(entry, done("Within 5 days.", source="faq", origin=origin), 2)
        assert entry.answer.stood_in == stood_in
    for source, stood_in in (("faq", True), ("quote", True), ("busy", True), ("handoff", False)):
        entry = waiting(table)
        table.fall_back(entry, structs.replace(FAQ, source=source), 2)
        assert entry.answer.stood_in == stood_in, source


def test_an_end_that_arrives_during_the_count_confirms_the_answer_itself(table: Requests) -> None:
    """It was asked here before, by a client that repeats it."""
    entry = make_entry()
    table.accept(entry)
    assert table.delta(delta("Hi"), 1) == []
    items = table.finish(entry, done("Hi there"), 2)
    assert texts(items) == [entry.opened().created, (0, "Hi there"), ("completed", "stop", "Hi there")]


def test_a_request_may_be_cancelled_during_the_count(table: Requests) -> None:
    entry = make_entry()
    table.accept(entry)
    assert [type(item) for item in table.cancel(entry, 2)] == [Opened, Response]
    entry.answer.admit(3)
    assert (entry.answer.state, entry.answer.admitted_unix_ms) == (AnswerState.DONE, None)


# --- replies arrive late, twice, with gaps, from two workers


def test_a_repeated_delta_is_shown_once(table: Requests) -> None:
    waiting(table)
    table.delta(delta("Hello"), 1)
    assert table.delta(delta("Hello"), 2) == []
    assert table.delta(delta("ello", 1), 3) == []
    assert table.delta(delta("llo you", 2), 4) == [Shown(R1, 5, " you")]


def test_after_a_gap_nothing_is_shown_until_the_end_fills_it(table: Requests) -> None:
    entry = waiting(table)
    table.delta(delta("He"), 1)
    assert table.delta(delta("you", 4), 2) == []
    assert texts(table.finish(entry, done("Hey you"), 3)) == [(2, "y you"), ("completed", "stop", "Hey you")]


def test_a_second_worker_with_the_same_text_continues_where_the_first_stopped(table: Requests) -> None:
    waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    assert table.delta(delta("Hell", attempt=2), 2) == []
    assert table.delta(delta("o you", 4, attempt=2), 3) == [Shown(R1, 5, " you")]
    assert table.delta(delta("XX", 9, attempt=1), 4) == [], "the first worker is not listened to any more"


def test_a_worker_that_is_ahead_continues_while_another_restarts(table: Requests) -> None:
    """Its partition moved; the other writes the same text, and may overtake it."""
    waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    assert table.delta(delta("He", attempt=2), 2) == []
    assert table.delta(delta(" you", 5, attempt=1), 3) == [Shown(R1, 5, " you")]
    assert table.delta(delta("llo you all", 2, attempt=2), 4) == [Shown(R1, 9, " all")]
    assert table.delta(delta("u al", 8, attempt=1), 5) == [], "it is behind now"
    assert table.delta(delta("l!", 12, attempt=1), 6) == [Shown(R1, 13, "!")]


def test_a_worker_that_writes_otherwise_does_not_silence_the_first(table: Requests) -> None:
    waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    assert table.delta(delta("Good", attempt=2), 2) == []
    assert table.delta(delta(" you", 5, attempt=1), 3) == [Shown(R1, 5, " you")]
    assert table.delta(delta("day", 9, attempt=2), 4) == [], "not even if it would fit"


def test_two_texts_are_never_spliced(table: Requests) -> None:
    entry = waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    assert table.delta(delta("Good day", attempt=2), 2) == []
    assert table.delta(delta(" you", 5, attempt=2), 3) == []
    assert table.finish(entry, done("Good day you", attempt=2), 4) == [], "the first may still write"
    items = replies.begin_again(entry, _FLOWS_MS + 5)
    assert [type(item) for item in items] == [Opened, Shown, Response]
    assert texts(items[2:]) == [("completed", "stop", "Good day you")], "the whole text replaces the first"


def test_a_different_text_restarts_the_answer_once_the_first_is_silent(table: Requests) -> None:
    """A worker was killed, and the next one has another prompt: its words may even begin alike."""
    waiting(table)
    table.delta(delta("Good morning", attempt=1), 1)
    assert table.delta(delta("Good", attempt=2), 2) == []
    assert table.delta(delta(" day", 4, attempt=2), 3) == []
    items = table.delta(delta(" you", 8, attempt=2), 5_010)
    assert [type(item) for item in items] == [Opened, Shown]
    assert items[1] == Shown(R1, 0, "Good day you")
    assert table.delta(delta("!", 12, attempt=2), 5_011) == [Shown(R1, 12, "!")]


@pytest.mark.parametrize(("end", "reason"), [("Hel", "stop"), ("Good day", "infeasible")])
def test_an_end_that_retracts_shown_text_is_a_failure(table: Requests, end: str, reason: Reason) -> None:
    """Only a cut may be shorter, and no cut may be another text."""
    entry = waiting(table)
    table.delta(delta("Hello"), 1)
    assert texts(table.finish(entry, done(end, reason=reason), 2)) == [("failed", "internal", "Hello")]


@pytest.mark.parametrize("whose", ["worker", "gateway"])
def test_a_failed_answer_keeps_its_text_and_its_reason(table: Requests, whose: str) -> None:
    """By the worker's reply or the gateway's own end."""
    error = ErrorDetail(type="server_error", code="internal_error", message="a fault of ours", retryable=True)
    entry = waiting(table)
    table.delta(delta("Hello"), 1)
    if whose == "worker":
        items = table.finish(entry, done("Hello", status="failed", reason="internal", error=error), 2)
    else:
        items = table.fail(entry, error, 2)
    assert texts(items) == [("failed", "internal", "Hello")]
    assert isinstance(items[-1], Response)
    assert items[-1].error == error


@pytest.mark.parametrize("again", ["", "Hel"])
def test_a_second_worker_that_gives_up_keeps_the_firsts_shown_text(table: Requests, again: str) -> None:
    """The first was killed in the middle, and too little time was left for the second: neither a fault nor a failed
    answer.
    """
    entry = waiting(table)
    table.delta(delta("Hello"), 10)
    items = table.finish(entry, done(again, attempt=2, status="incomplete", reason="infeasible"), 6_010)
    assert texts(items) == [("incomplete", "infeasible", "Hello")]


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_second_worker_that_does_not_begin_does_not_cut_the_first(table: Requests, status: Status) -> None:
    """The first lives: its partition moved when another worker joined. Its own end does end the answer."""
    entry = waiting(table)
    table.delta(delta("Hello", attempt=1), 10)
    declined = done("", attempt=2, status=status, reason="infeasible" if status == "incomplete" else "internal")
    assert table.finish(entry, declined, 5_010) == []
    assert (entry.answer.done, texts(table.delta(delta(" you", 5, attempt=1), 5_020))) == (False, [(5, " you")])
    items = table.finish(entry, done("Hello you", attempt=1), 5_030)
    assert texts(items) == [("completed", "stop", "Hello you")]


def test_the_writing_worker_or_a_gateway_may_cut_the_answer(table: Requests) -> None:
    for number, attempt, origin in ((1, 1, "worker"), (2, 2, "gateway")):
        entry = waiting(table, number)
        table.delta(delta("Hello", attempt=1, request_id=name(number)), 10)
        cut = done("", attempt=attempt, status="incomplete", reason="deadline", request_id=name(number))
        items = table.finish(entry, structs.replace(cut, origin=origin), 20)
        assert texts(items) == [("incomplete", "deadline", "Hello")]


def test_the_first_workers_end_counts_even_after_the_second_began_differently(table: Requests) -> None:
    entry = waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    table.delta(delta("Good", attempt=2), 2)
    items = table.finish(entry, done("Hello you", attempt=1), 3)
    assert texts(items) == [(5, " you"), ("completed", "stop", "Hello you")]


def test_replies_to_ended_or_unknown_requests_are_dropped(table: Requests) -> None:
    entry = waiting(table)
    table.finish(entry, done("Hi"), 1)
    assert table.delta(delta("more", 2), 2) == []
    assert table.delta(delta("x", request_id="nobody"), 2) == []
    assert table.get(R1) is None, "a second terminal event finds no open answer"


# --- the deadlines


def test_without_text_the_soft_deadline_is_missed_and_with_text_the_hard(table: Requests) -> None:
    silent, streaming = publishing(table, 1), publishing(table, 2)
    streaming.acknowledge()
    table.delta(delta("x", request_id=name(2)), 1)
    assert table.due_times.next_unix_ms() == 200
    assert [*table.due_times.late(199.9)] == []
    assert [*table.due_times.late(200)] == [silent]
    table.fall_back(silent, FAQ, 200)
    assert table.due_times.next_unix_ms() == 1_000
    assert [*table.due_times.late(999.9)] == []
    assert [*table.due_times.late(1_000)] == [streaming]
    assert texts(table.cut(streaming, 1_000)) == [("incomplete", "deadline", "x")]
    assert table.due_times.next_unix_ms() is None


def test_after_a_fault_in_one_due_request_the_next_is_still_due(table: Requests) -> None:
    first, second = publishing(table, 1), publishing(table, 2)
    assert next(table.due_times.late(200)) is first
    assert table.due_times.next_unix_ms() == 200
    assert [*table.due_times.late(200)] == [second]


def test_unseen_text_does_not_stop_the_soft_deadline_and_shown_text_is_never_replaced(
    table: Requests,
) -> None:
    """A request that misses both deadlines is late once."""
    unseen, seen = publishing(table), waiting(table, 2)
    for entry in (unseen, seen):
        table.delta(delta("He", request_id=entry.response_id), 1)
    assert [*table.due_times.late(200)] == [unseen]
    assert [*table.due_times.late(5_000)] == [unseen, seen]
    assert texts(table.fall_back(unseen, FAQ, 200))[1] == (0, FAQ.text)
    with pytest.raises(AssertionError, match="has text already"):
        table.fall_back(seen, FAQ, 2)
