"""A client asks again, loses its connection or erases its conversation; what has ended is remembered for a while."""

import pytest

from shared.wire.messages import ResponseCreate, Said
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import (
    R1,
    SESSION,
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

# --- the client asks again, or is gone


def test_a_repeated_event_finds_its_answer_and_gets_all_of_it_again(table: Requests) -> None:
    entry = publishing(table)
    assert table.find(SessionKey("t", "s"), "e1") is entry
    assert table.reattach(entry, "c2") == []
    assert texts(entry.acknowledge()) == [created()]
    table.delta(delta("He"), 1)
    assert texts(table.reattach(entry, "c3")) == [created(), (0, "He")]
    assert entry.connection_id == "c3"
    table.finish(entry, done("Hey"), 2)
    assert table.find(SessionKey("t", "s"), "e1") is entry
    assert texts(table.reattach(entry, "c4")) == [created(), (0, "Hey"), ("completed", "stop", "Hey")]


def test_a_request_is_found_by_response_or_event_id_in_its_own_session(table: Requests) -> None:
    entry, other = publishing(table), publishing(table, 2)
    assert table.named(SessionKey("t", "s"), R1, None) is entry
    assert table.named(SessionKey("t", "s"), R1, "e2") is entry, "the answer's name counts first"
    assert table.named(SessionKey("t", "s"), None, "e2") is other
    assert table.named(SessionKey("t", "s"), "resp_never", "e2") is other
    table.cancel(entry, 1)
    assert table.named(SessionKey("t", "s"), R1, None) is entry, "it ended a short while ago"
    for tenant, session, response, event in (
        ("other", "s", R1, "e1"),
        ("t", "other", R1, "e1"),
        ("t", "s", "resp_never", "e3"),
        ("t", "s", None, None),
    ):
        assert table.named(SessionKey(tenant, session), response, event) is None
        assert event is None or table.find(SessionKey(tenant, session), event) is None


def test_a_lost_connection_loses_no_answer(table: Requests) -> None:
    entry, other = waiting(table), publishing(table, 2)
    other.connection_id = "c2"
    table.detach("c")
    assert (entry.connection_id, other.connection_id) == (None, "c2")
    table.delta(delta("Hey"), 1)
    assert texts(table.reattach(entry, "c3")) == [created(), (0, "Hey")]


def test_forgetting_an_answer_removes_no_other_answers_event_id(table: Requests) -> None:
    """Its event id is reused for another question, which is in flight."""
    entry = waiting(table)
    newer = make_entry(2, event_id=entry.request.event_id)
    table.finish(entry, done("Hi"), 1)
    table.accept(newer)
    table.forget(entry)
    assert table.get_any(entry.response_id) is None
    assert table.find(SessionKey("t", "s"), entry.request.event_id) is newer
    table.forget(newer)
    assert table.get(newer.response_id) is newer, "what has not ended is not forgotten"


def test_an_erasure_forgets_only_the_sessions_earlier_generations(table: Requests) -> None:
    """No other session's answers: open ones must be ended, ended ones are dropped."""
    ended, open_, later = waiting(table), publishing(table, 2), publishing(table, 3, generation=7)
    other = publishing(table, 4, session=SessionKey("t", "s2"))
    table.finish(ended, done("Hi"), 1)
    assert table.open_before(SESSION, 7) == [open_]
    table.forget_before(SESSION, 7)
    assert table.find(SessionKey("t", "s"), "e1") is None
    assert table.get_any(ended.response_id) is None
    table.finish(later, done("Hi", request_id=later.response_id), 1)
    table.forget_before(SESSION, 7)
    assert table.find(SessionKey("t", "s"), "e3") is later
    assert table.open_before(SessionKey("t", "s2"), 7) == [other]


def test_the_reason_why_a_reply_is_shown_to_no_client(table: Requests) -> None:
    erased, open_ = waiting(table), waiting(table, 2)
    table.finish(erased, done("Hi"), 1)
    table.forget_before(SESSION, 7)
    names = (erased.response_id, open_.response_id, "resp_never")
    assert [table.why_dropped(done("Hi", request_id=name)) for name in names] == ["erased", "session", "unknown"]


def test_an_event_id_belongs_to_its_newest_generation(table: Requests) -> None:
    """A client that returns with an erased answer does not take the event id from the client that asked again."""
    newer, older = make_entry(1, generation=7), make_entry(2, event_id="e1")
    table.accept(newer)
    table.accept(older)
    assert table.find(SessionKey("t", "s"), newer.request.event_id) is newer
    table.refuse(older)
    assert table.find(SessionKey("t", "s"), newer.request.event_id) is newer


# --- memory


def test_the_number_of_remembered_answers_is_bounded(table: Requests) -> None:
    for number in range(1, 2_502):
        table.cancel(publishing(table, number), now_unix_ms=1.0)
    assert table.find(SessionKey("t", "s"), "e501") is None
    assert table.find(SessionKey("t", "s"), "e502") is not None
    assert len(table._ended) == len(table._by_event) == 2_000


def test_the_number_of_remembered_erased_answers_is_bounded(table: Requests) -> None:
    for number in range(1, 2_002):
        table.cancel(entry := publishing(table, number), now_unix_ms=1.0)
        table.forget(entry)
    known = [table.why_dropped(done("Hi", request_id=name(number))) for number in (1, 2, 2_001)]
    assert known == ["unknown", "erased", "erased"]


def test_answers_are_remembered_for_two_minutes(table: Requests) -> None:
    table.cancel(publishing(table, 1), now_unix_ms=0.0)
    table.cancel(publishing(table, 2), now_unix_ms=120_000.0)
    assert table.find(SessionKey("t", "s"), "e1") is not None
    table.cancel(publishing(table, 3), now_unix_ms=120_000.1)
    assert table.find(SessionKey("t", "s"), "e1") is None
    assert table.find(SessionKey("t", "s"), "e2") is not None


@pytest.mark.parametrize("where", ["question", "turns", "answer"])
def test_the_text_of_remembered_answers_is_bounded(table: Requests, where: str) -> None:
    text = "x" * 1_100_000
    asked = ResponseCreate(event_id="e", input="hi", turns=(Said(user="", assistant=text),))
    fields = {"question": {"input": text}, "turns": {"asked": asked}, "answer": {}}[where]
    for number in range(1, 6):
        entry = publishing(table, number, **fields)
        entry.acknowledge()
        if where == "answer":
            table.delta(delta(text, request_id=name(number)), 1.0)
        table.cancel(entry, now_unix_ms=1.0)
    assert [table.get_any(name(number)) is not None for number in (1, 2, 4, 5)] == [False, False, True, True]
    table.forget_before(SessionKey("t", "s"), 1)
    assert table._ended_chars == 0
