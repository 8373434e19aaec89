"""Each accepted request is answered once; what its client is shown is in order, whatever the replies do."""

import pytest
from msgspec import structs

from gateway.destination.destination import Destination
from gateway.request import replies
from gateway.request.answer import _FLOWS_MS, AnswerState
from gateway.request.entry import RequestTrace
from gateway.request.outbox import Opened, Shown
from shared.conversation.turn import Turn
from shared.faq.fallback import Fallback
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


def test_the_predicted_time_is_told_with_the_promise_of_an_answer(table: Requests) -> None:
    entry = publishing(table)
    entry.publication.destination = Destination(bucket="medium", eta_ms=12.6)
    assert texts(entry.acknowledge()) == [structs.replace(created(), eta_ms=13)]


def test_an_answer_is_assured_then_shown_then_done(table: Requests) -> None:
    trace = RequestTrace(context=TraceContext(1, 2))
    entry = make_entry(soft=1_200, hard=2_000, received=1_000.0, trace=trace, bucket="medium")
    table.accept(entry)
    entry.admit(1_005.12345)
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


def test_what_a_fallback_answers_is_remembered_as_it_was_asked(table: Requests) -> None:
    """By the time on the wire, and in the generation of the conversation that it was asked in."""
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
    )


def test_a_request_that_is_refused_is_forgotten(table: Requests) -> None:
    entry = make_entry()
    table.accept(entry)
    table.refuse(entry)
    assert (len(table), table.find(SessionKey("t", "s"), "e1"), table.get(R1)) == (0, None, None)
    assert table.due_times.next_unix_ms() is None
    table.refuse(make_entry(2))  # nor is it known where a fault came before it was accepted
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
    """Nor that of another attempt, which nobody saw. The acknowledgement says nothing new."""
    entry = publishing(table)
    table.delta(delta("He"), 1)
    items = table.cancel(entry, 2) if end is None else table.finish(entry, end, 2)
    assert texts(items) == [created(), *shown]
    assert entry.acknowledge() == []
    assert entry.publication.published


def test_the_fallback_before_the_acknowledgement_replaces_what_nobody_saw(table: Requests) -> None:
    entry = publishing(table)
    table.delta(delta("He"), 1)
    items = table.fall_back(entry, FAQ, 2)
    assert texts(items) == [created(), (0, FAQ.text), ("completed", "stop", FAQ.text)]
    response = items[-1]
    assert isinstance(response, Response)
    assert (response.source, response.grounding, response.model) == ("faq", FAQ.grounding, None)
    assert response.timings.ttft_ms == 2.0


@pytest.mark.parametrize("origin", ["worker", "gateway"])
def test_what_was_replaced_and_what_it_stands_on_is_told_with_the_end(table: Requests, origin: str) -> None:
    """By the worker's own word, and by that of the gateway that an adopted answer began at."""
    replaced = (Replaced(offset=0, length=4, id="g"),)
    end = done("Soon. Yes.", source="mixed", grounding=FAQ.grounding, replaced=replaced, origin=origin)
    response = table.finish(waiting(table), end, 2)[-1]
    assert isinstance(response, Response)
    assert (response.source, response.grounding, response.replaced) == ("mixed", FAQ.grounding, replaced)


def test_a_gateways_entry_stands_in_and_a_workers_is_its_answer(table: Requests) -> None:
    for origin, stood_in in (("worker", False), ("gateway", True)):
        entry = waiting(table)
        table.finish(entry, done("Within 5 days.", source="faq", origin=origin), 2)
        assert entry.answer.stood_in == stood_in
    for fallback, stood_in in ((FAQ, True), (Fallback(source="handoff", text="Somebody comes.", language="en"), False)):
        entry = waiting(table)
        table.fall_back(entry, fallback, 2)
        assert entry.answer.stood_in == stood_in


def test_an_end_that_comes_while_a_request_is_counted_assures_the_answer_itself(table: Requests) -> None:
    """It was asked here before, by a client that asks again."""
    entry = make_entry()
    table.accept(entry)
    assert table.delta(delta("Hi"), 1) == []
    items = table.finish(entry, done("Hi there"), 2)
    assert texts(items) == [entry.opened().created, (0, "Hi there"), ("completed", "stop", "Hi there")]


def test_a_request_may_be_cancelled_while_it_is_counted(table: Requests) -> None:
    entry = make_entry()
    table.accept(entry)
    assert [type(item) for item in table.cancel(entry, 2)] == [Opened, Response]
    entry.admit(3)
    assert (entry.answer.state, entry.answer.admitted_unix_ms) == (AnswerState.DONE, None)


# --- replies come late, twice, with gaps, from two workers


def test_a_repeated_delta_is_shown_once(table: Requests) -> None:
    waiting(table)
    table.delta(delta("Hello"), 1)
    assert table.delta(delta("Hello"), 2) == []
    assert table.delta(delta("ello", 1), 3) == []
    assert table.delta(delta("llo you", 2), 4) == [Shown(R1, 5, " you")]


def test_behind_a_gap_nothing_is_shown_until_the_end_fills_it(table: Requests) -> None:
    entry = waiting(table)
    table.delta(delta("He"), 1)
    assert table.delta(delta("you", 4), 2) == []
    assert texts(table.finish(entry, done("Hey you"), 3)) == [(2, "y you"), ("completed", "stop", "Hey you")]


def test_a_second_worker_with_the_same_text_goes_on_where_the_first_was(table: Requests) -> None:
    waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    assert table.delta(delta("Hell", attempt=2), 2) == []
    assert table.delta(delta("o you", 4, attempt=2), 3) == [Shown(R1, 5, " you")]
    assert table.delta(delta("XX", 9, attempt=1), 4) == [], "the first worker is not listened to any more"


def test_a_worker_that_is_ahead_writes_on_while_another_begins_anew(table: Requests) -> None:
    """Its partition was moved; the other has the same text to write, and may overtake it."""
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
    assert table.delta(delta("day", 9, attempt=2), 4) == [], "not even where it would fit"


def test_two_texts_are_never_spliced(table: Requests) -> None:
    entry = waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    assert table.delta(delta("Good day", attempt=2), 2) == []
    assert table.delta(delta(" you", 5, attempt=2), 3) == []
    assert table.finish(entry, done("Good day you", attempt=2), 4) == [], "the first may still write"
    items = replies.begin_again(entry, _FLOWS_MS + 5)
    assert [type(item) for item in items] == [Opened, Shown, Response]
    assert texts(items[2:]) == [("completed", "stop", "Good day you")], "the whole text takes the place of the first"


def test_other_words_begin_the_answer_again_once_the_first_is_silent(table: Requests) -> None:
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
def test_an_end_that_takes_back_what_was_shown_has_failed(table: Requests, end: str, reason: Reason) -> None:
    """Only a cut may be shorter, and no cut may be another text."""
    entry = waiting(table)
    table.delta(delta("Hello"), 1)
    assert texts(table.finish(entry, done(end, reason=reason), 2)) == [("failed", "internal", "Hello")]


@pytest.mark.parametrize("whose", ["worker", "gateway"])
def test_an_answer_that_fails_keeps_its_text_and_says_why(table: Requests, whose: str) -> None:
    """By the worker's word or the gateway's own."""
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
def test_a_second_worker_that_gives_up_leaves_what_the_first_has_shown(table: Requests, again: str) -> None:
    """The first was killed in the middle, and for the second there was too little time left: no fault, and no answer
    that has failed."""
    entry = waiting(table)
    table.delta(delta("Hello"), 10)
    items = table.finish(entry, done(again, attempt=2, status="incomplete", reason="infeasible"), 6_010)
    assert texts(items) == [("incomplete", "infeasible", "Hello")]


@pytest.mark.parametrize("status", ["incomplete", "failed"])
def test_a_second_worker_that_does_not_begin_cuts_nobody_who_writes(table: Requests, status: Status) -> None:
    """The first lives: its partition was moved when another worker joined. By its own word the answer does end."""
    entry = waiting(table)
    table.delta(delta("Hello", attempt=1), 10)
    declined = done("", attempt=2, status=status, reason="infeasible" if status == "incomplete" else "internal")
    assert table.finish(entry, declined, 5_010) == []
    assert (entry.answer.done, texts(table.delta(delta(" you", 5, attempt=1), 5_020))) == (False, [(5, " you")])
    items = table.finish(entry, done("Hello you", attempt=1), 5_030)
    assert texts(items) == [("completed", "stop", "Hello you")]


def test_the_worker_that_writes_may_cut_its_answer_and_a_gateway_may_too(table: Requests) -> None:
    for number, attempt, origin in ((1, 1, "worker"), (2, 2, "gateway")):
        entry = waiting(table, number)
        table.delta(delta("Hello", attempt=1, request_id=name(number)), 10)
        cut = done("", attempt=attempt, status="incomplete", reason="deadline", request_id=name(number))
        items = table.finish(entry, structs.replace(cut, origin=origin), 20)
        assert texts(items) == [("incomplete", "deadline", "Hello")]


def test_the_first_workers_end_stands_even_after_the_second_began_otherwise(table: Requests) -> None:
    entry = waiting(table)
    table.delta(delta("Hello", attempt=1), 1)
    table.delta(delta("Good", attempt=2), 2)
    items = table.finish(entry, done("Hello you", attempt=1), 3)
    assert texts(items) == [(5, " you"), ("completed", "stop", "Hello you")]


def test_replies_to_what_is_over_or_unknown_are_dropped(table: Requests) -> None:
    entry = waiting(table)
    table.finish(entry, done("Hi"), 1)
    assert table.delta(delta("more", 2), 2) == []
    assert table.delta(delta("x", request_id="nobody"), 2) == []
    assert table.get(R1) is None, "a second terminal event finds nothing to end"


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


def test_whoever_ends_one_late_request_and_fails_finds_the_next_still_due(table: Requests) -> None:
    first, second = publishing(table, 1), publishing(table, 2)
    assert next(table.due_times.late(200)) is first
    assert table.due_times.next_unix_ms() == 200
    assert [*table.due_times.late(200)] == [second]


def test_text_that_nobody_saw_does_not_hold_the_soft_deadline_and_what_was_shown_is_never_replaced(
    table: Requests,
) -> None:
    """Who missed both deadlines is late once."""
    unseen, seen = publishing(table), waiting(table, 2)
    for entry in (unseen, seen):
        table.delta(delta("He", request_id=entry.response_id), 1)
    assert [*table.due_times.late(200)] == [unseen]
    assert [*table.due_times.late(5_000)] == [unseen, seen]
    assert texts(table.fall_back(unseen, FAQ, 200))[1] == (0, FAQ.text)
    with pytest.raises(AssertionError, match="has text already"):
        table.fall_back(seen, FAQ, 2)
