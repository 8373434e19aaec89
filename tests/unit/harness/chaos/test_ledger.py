"""A ledger detects violations: its verdict names each fault planted into the messages that clients receive."""

from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.wire.messages import ResponseDelta
from tests.chaos.ledger.requests import Breach, Ledger
from tests.chaos.ledger.story import story
from tests.chaos.ledger.verdict import GRACE_S, RETURN_GRACE_S, judge
from tests.unit.harness.chaos.told import (
    DEADLINE_MS,
    Heard,
    Told,
    created,
    delta,
    done,
    found,
    hear,
    refusal,
    replay,
    right_answer,
    rights,
    verdict_of,
)

ANSWERS = st.lists(
    st.tuples(st.integers(0, 3), st.lists(st.integers(1, 100), max_size=6)), min_size=2, max_size=12
).map(lambda drawn: [right_answer(number, f"s{session}", cuts) for number, (session, cuts) in enumerate(drawn)])


@given(ANSWERS)
def test_right_answers_pass(answers: list[Told]) -> None:
    """The cuts between deltas and the number of sessions do not matter."""
    verdict = verdict_of(answers)
    assert found(verdict) == set()
    assert verdict.holds
    assert (verdict.requests, verdict.accepted) == (len(answers), len(answers))
    assert verdict.latest_s is not None
    assert verdict.latest_s < 0


def lose_the_done(told: Told, other: Told) -> None:
    told.events.pop()


def say_nothing(told: Told, other: Told) -> None:
    told.events.clear()


def end_twice(told: Told, other: Told) -> None:
    told.add(told.events[-1].message, 1.0)


def go_on_after_the_end(told: Told, other: Told) -> None:
    told.add(delta(told, 99, 99, "x"), 1.0)


def begin_again_after_the_end(told: Told, other: Told) -> None:
    told.add(created(told), 1.0)


def refuse_after_the_end(told: Told, other: Told) -> None:
    told.add(refusal(told), 1.0)


def answer_twice(told: Told, other: Told) -> None:
    told.events.insert(1, replace(told.events[0], message=created(told, "resp-another")))


def swap_seq(told: Told, other: Told) -> None:
    first = told.events[1]
    assert isinstance(first.message, ResponseDelta)
    told.events[1] = replace(first, message=msgspec.structs.replace(first.message, seq=1))


def repeat_a_delta(told: Told, other: Told) -> None:
    told.events.insert(2, told.events[1])


def leave_out_the_first_delta(told: Told, other: Told) -> None:
    del told.events[1]


def begin_again_on_the_same_socket(told: Told, other: Told) -> None:
    told.events.insert(1, told.events[0])


def end_late(told: Told, other: Told) -> None:
    told.events[-1] = replace(told.events[-1], at_s=told.asked_s + DEADLINE_MS / 1_000 + GRACE_S + 0.001)


def change_a_letter(told: Told, other: Told) -> None:
    text = rights(told.question).model.replace("more", "mode")
    del told.events[1:]
    told.add(delta(told, 0, 0, text), 0.1)
    told.add(done(told, text), 0.9)


def cut_before_the_end(told: Told, other: Told) -> None:
    """Claim a whole answer whose text is cut."""
    text = rights(told.question).model[:-1]
    del told.events[1:]
    told.add(delta(told, 0, 0, text), 0.1)
    told.add(done(told, text), 0.9)


def say_another_text_at_the_end(told: Told, other: Told) -> None:
    told.events[-1] = replace(told.events[-1], message=done(told, rights(told.question).model[:-1], reason="deadline"))


def tell_anothers_text(told: Told, other: Told) -> None:
    text = rights(other.question).model
    del told.events[1:]
    told.add(delta(told, 0, 0, text), 0.1)
    told.add(done(told, text), 0.9)


def show_anothers_text_before_the_right_one(told: Told, other: Told) -> None:
    told.shown_before(delta(told, 0, 0, rights(other.question).model[:20]))


def show_a_wrong_beginning_before_the_right_one(told: Told, other: Told) -> None:
    right = rights(told.question).model
    told.shown_before(delta(told, 0, 0, right[:3]), delta(told, 1, 3, "x"))


def show_another_text_and_no_more(told: Told, other: Told) -> None:
    del told.events[1:]
    told.add(delta(told, 0, 0, rights(other.question).model), 0.1)


def refuse_for_a_fault(told: Told, other: Told) -> None:
    told.events.clear()
    told.add(refusal(told, "internal"), 0.1)


def tell_anothers_session(told: Told, other: Told) -> None:
    told.events = [replace(heard, session="s-foreign") for heard in told.events]


def refuse_what_was_accepted(told: Told, other: Told) -> None:
    told.events[-1] = replace(told.events[-1], message=refusal(told))


LIES: dict[Callable[[Told, Told], None], Breach] = {
    lose_the_done: Breach.LOST,
    refuse_what_was_accepted: Breach.LOST,
    say_nothing: Breach.UNHEARD,
    end_twice: Breach.TWICE,
    go_on_after_the_end: Breach.TWICE,
    begin_again_after_the_end: Breach.TWICE,
    refuse_after_the_end: Breach.TWICE,
    answer_twice: Breach.TWO_RESPONSES,
    swap_seq: Breach.ORDER,
    repeat_a_delta: Breach.ORDER,
    leave_out_the_first_delta: Breach.TEXT,
    begin_again_on_the_same_socket: Breach.ORDER,
    end_late: Breach.LATE,
    change_a_letter: Breach.WRONG_TEXT,
    cut_before_the_end: Breach.WRONG_TEXT,
    say_another_text_at_the_end: Breach.TEXT,
    tell_anothers_text: Breach.FOREIGN,
    show_anothers_text_before_the_right_one: Breach.FOREIGN,
    show_a_wrong_beginning_before_the_right_one: Breach.WRONG_TEXT,
    show_another_text_and_no_more: Breach.FOREIGN,
    refuse_for_a_fault: Breach.FAULT,
    tell_anothers_session: Breach.FOREIGN,
}


@pytest.mark.parametrize(("lie", "breach"), LIES.items(), ids=lambda value: getattr(value, "__name__", ""))
@settings(max_examples=25)
@given(answers=ANSWERS, chosen=st.integers(min_value=0))
def test_a_planted_fault_is_found_and_charged_to_its_request(
    answers: list[Told], chosen: int, lie: Callable[[Told, Told], None], breach: Breach
) -> None:
    """The other answers are right; the story of that request names the fault."""
    told, other = answers[chosen % len(answers)], answers[(chosen + 1) % len(answers)]
    lie(told, other)
    ledger = replay(answers)
    verdict = judge(ledger, rights)
    assert not verdict.holds
    assert breach in found(verdict)
    assert verdict.is_only_late == (breach is Breach.LATE)
    assert [page.question.event_id for page in verdict.guilty] == [told.question.event_id]
    page = verdict.guilty[0]
    assert told.question.event_id in story(ledger, page, [], 0.0)


def test_an_answer_to_no_question_is_reported_as_a_stray() -> None:
    """A client received a response that belongs to no request of this load."""
    told = right_answer(0, "s0", [])
    ledger = replay([told])
    ledger.heard("s0", ResponseDelta(response_id="resp-nobody", seq=0, offset=0, delta="x", cursor="c"), 1.0)
    verdict = judge(ledger, rights)
    assert (verdict.strays, verdict.count(Breach.FOREIGN), verdict.holds) == (1, 1, False)


def test_a_request_refused_at_first_is_counted_and_breaks_no_promise() -> None:
    told = right_answer(0, "s0", [])
    told.events = []
    told.add(refusal(told), 0.1)
    verdict = verdict_of([told, right_answer(1, "s1", [])])
    assert (verdict.holds, verdict.accepted, verdict.refused) == (True, 1, {"queue_full": 1})


def test_a_load_without_accepted_requests_proves_nothing() -> None:
    told = right_answer(0, "s0", [])
    told.events = []
    told.add(refusal(told), 0.1)
    verdict = verdict_of([told])
    assert (found(verdict), verdict.accepted, verdict.holds) == (set(), 0, False)
    assert not verdict_of([]).holds


@pytest.mark.parametrize("beginning", ["", "we are", "we are busy", "       ask-0 is"])
def test_a_text_that_begins_either_right_answer_may_be_replaced(beginning: str) -> None:
    """One gateway began with the fallback, and another one got the model's answer."""
    told = right_answer(0, "s0", [])
    told.shown_before(delta(told, 0, 0, beginning))
    verdict = verdict_of([told])
    assert (verdict.holds, verdict.told_anew) == (True, 1)


@given(ANSWERS, st.integers(min_value=0), st.integers(min_value=0))
def test_a_client_that_reconnects_may_get_the_rest_or_the_whole_again(
    answers: list[Told], chosen: int, place: int
) -> None:
    """Wherever the answer was cut, the rest may follow, or the whole from `response.created`; each is right once."""
    told = answers[chosen % len(answers)]
    ledger = Ledger()
    for each in answers:
        ledger.asked(each.question, each.asked_s)
    session = told.question.session
    cut = place % len(told.events)
    for heard in told.events[:cut]:
        hear(ledger, heard)
    ledger.lost(session, told.asked_s + 0.5, "cut")
    ledger.dialled(session, told.asked_s + 0.6, "gateway-1")
    ledger.opened(session, told.asked_s + 0.6, resumed=True, recovered=place % 2 == 0, replayed=0)
    for heard in told.events if place % 2 else told.events[cut:]:
        hear(ledger, replace(heard, at_s=heard.at_s + 1.0))
    for each in answers:
        if each is not told:
            for heard in each.events:
                hear(ledger, heard)
    assert judge(ledger, rights).holds


@pytest.mark.parametrize(
    ("stall", "holds"),
    [((4.9, 5.3), True), ((5.2, 5.7), True), ((4.0, 5.0), False), ((5.25, 5.3), False), ((5.6, 6.5), False)],
    ids=["over the deadline", "after it", "before it", "too short", "after the end"],
)
def test_an_answer_that_clients_could_not_receive_is_not_late(stall: tuple[float, float], holds: bool) -> None:
    """Their own event loop was blocked for half a second after the deadline, of which half is grace."""
    told = right_answer(0, "s0", [])
    told.events[-1] = replace(told.events[-1], at_s=5.0 + GRACE_S + 0.25)
    ledger = Ledger()
    ledger.stalls.append(stall)
    verdict = judge(replay([told], ledger), rights)
    assert verdict.holds is holds
    assert verdict.latest_s is not None
    assert (verdict.latest_s <= GRACE_S) is holds


@pytest.mark.parametrize(
    ("away", "end_s", "holds", "excused"),
    [
        ((4.0, 6.0), 6.5, True, 1),
        ((4.0, 6.0), 6.0, True, 1),
        ((5.2, 6.0), 6.5, True, 1),
        ((4.0, 6.0), 6.0 + RETURN_GRACE_S + 0.01, False, 1),
        ((4.0, 4.5), 5.2, True, 0),
        ((4.0, 4.5), 5.3, False, 0),
        ((5.3, 6.0), 6.1, False, 0),
    ],
    ids=[
        "away at the deadline",
        "with its return",
        "in the grace",
        "long after its return",
        "back before",
        "back and late",
        "too late",
    ],
)
def test_only_a_client_that_was_away_at_its_deadline_is_excused(
    away: tuple[float, float], end_s: float, holds: bool, excused: int
) -> None:
    """It also gets its answer soon after it has reconnected."""
    told = right_answer(0, "s0", [])
    told.events[-1] = replace(told.events[-1], at_s=end_s)
    ledger = Ledger()
    ledger.lost("s0", away[0], "cut")
    ledger.opened("s0", away[1], resumed=False, recovered=False, replayed=0)
    verdict = judge(replay([told], ledger), rights)
    assert (verdict.holds, verdict.excused.requests) == (holds, excused)
    assert verdict.excused.in_time_at_gateway == excused


def test_a_fallback_and_a_prefix_of_the_models_answer_are_right_texts() -> None:
    """The fallback must be complete; the model's answer may be cut anywhere."""
    fallback, cut = right_answer(0, "s0", []), right_answer(1, "s1", [])
    for told, text, source, reason in (
        (fallback, "we are busy", "busy", "stop"),
        (cut, rights(cut.question).model[:9], "model", "deadline"),
    ):
        del told.events[1:]
        told.add(delta(told, 0, 0, text), 0.1)
        told.add(done(told, text, source=source, reason=reason), 0.9)
    verdict = verdict_of([fallback, cut])
    assert verdict.holds
    assert verdict.endings == {"busy incomplete/stop": 1, "model incomplete/deadline": 1}


def test_a_cancel_that_crosses_the_end_of_an_erasure_may_be_refused() -> None:
    told = right_answer(0, "s0", [])
    told.add(refusal(told, "unknown_response"), 1.0)
    assert verdict_of([told]).holds


@pytest.mark.parametrize("came_back", [True, False])
def test_only_a_client_that_changed_gateways_may_get_an_unread_question_error(came_back: bool) -> None:
    told = right_answer(0, "s0", [])
    told.events[1:] = [Heard("s0", told.asked_s + 0.1, None)] if came_back else []
    text = rights(told.question).unread
    if came_back:
        told.add(created(told), 0.2)
    told.add(delta(told, 0, 0, text), 0.3)
    told.add(done(told, text, source="busy", reason="stop"), 0.9)
    assert found(verdict_of([told])) == (set() if came_back else {Breach.WRONG_TEXT})


@pytest.mark.parametrize(("times", "breaches"), [(1, set()), (2, {Breach.TWICE})])
def test_a_question_repeated_before_its_end_was_received_may_be_answered_twice(
    times: int, breaches: set[Breach]
) -> None:
    told, ledger = right_answer(0, "s0", []), Ledger()
    ledger.asked(told.question, told.asked_s)
    *begun, end = told.events
    for heard in begun:
        hear(ledger, heard)
    ledger.asked_again(told.question.event_id, end.at_s)
    for heard in [end, *told.events * times]:
        hear(ledger, heard)
    assert found(judge(ledger, rights)) == breaches


def test_a_story_lists_the_events_of_a_request_and_nearby_faults_in_order() -> None:
    """Times count from the start of the load; a kill near the request is listed at its time."""
    from tests.chaos.ledger.requests import Line

    told = right_answer(0, "s0", [])
    told.events.pop()
    ledger = replay([told])
    page = judge(ledger, rights).guilty[0]
    lines = story(ledger, page, [Line(0.07, "worker-1 killed"), Line(900.0, "much later")], 0.0).splitlines()
    told_lines = [line.split(maxsplit=1)[1] for line in lines[1:]]
    assert told_lines[0] == "asked"
    assert told_lines[1].startswith("created")
    assert told_lines[2] == "system   worker-1 killed"
    assert "much later" not in "\n".join(lines)
    assert told_lines[-1] == "deadline"
