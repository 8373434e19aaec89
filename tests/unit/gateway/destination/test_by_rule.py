"""A question's destination is the lane that the registry's rule names, if a worker of it is live."""

import pytest

from gateway.destination.admission import AdmissionPolicy
from gateway.destination.choose import View, by_rule
from gateway.destination.destination import TO_CHAMPION, Destination
from gateway.destination.ladder import Ladder
from gateway.destination.lanes import LaneAdmissions
from gateway.request.cursor import Place
from gateway.request.resumption import adopt
from shared.versions.state import Rule, State
from shared.wire.lanes import CHAMPION, LANES, Lane
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import NOW, SESSION, make_entry, report

STATE = State(
    epoch=7,
    aliases={"champion": "old", "canary": "new", "previous": "older"},
    rule=Rule(salt="a", share=0.5, control=True),
)
SESSIONS = [SessionKey("shop", f"s{number}") for number in range(50)]


def view_of(state: State, *live: Lane) -> View:
    admissions = LaneAdmissions(AdmissionPolicy())
    for lane in live:
        admissions.observe(report(lane, lane=lane, revisions=("old", "new")), NOW)
    return View(now_unix_ms=NOW, state=state, admissions=admissions, ladder=Ladder(), partition_of=lambda *_: None)


def test_a_lane_that_lacks_a_bucket_of_the_champions_gets_no_conversation() -> None:
    view = view_of(STATE, "canary", "control")
    view.admissions.observe(report("c", lane="canary", buckets=("short",), revisions=("new",)), NOW)
    view.admissions.forget("canary")
    of_short = {by_rule(session, "short", view).lane for session in SESSIONS}
    view.admissions.observe(report("champion", revisions=("old",)), NOW)
    assert "canary" in of_short
    assert {by_rule(session, "short", view).lane for session in SESSIONS} == {CHAMPION, "control"}


@pytest.mark.parametrize("lane", LANES)
def test_a_lane_is_live_by_the_version_that_its_alias_names(lane: Lane) -> None:
    for alias, live in ((None, True), ("new", True), ("refused", lane == CHAMPION)):
        state = State(epoch=7, aliases={lane: alias} if alias else {})
        assert view_of(state, lane).is_live(lane, "short") is live


def destinations(*live: Lane) -> set[Destination]:
    view = view_of(STATE, *live)
    return {by_rule(session, "short", view) for session in SESSIONS}


def test_canary_and_control_get_their_halves_and_name_their_versions() -> None:
    assert destinations("canary", "control") == {Destination("canary", "new", 7), Destination("control", "old", 7)}


def test_questions_of_a_lane_without_live_workers_go_to_the_champion() -> None:
    assert destinations("control") == {Destination(CHAMPION, "old", 7), Destination("control", "old", 7)}
    assert destinations() == {Destination(CHAMPION, "old", 7)}


def test_an_empty_registry_names_no_version() -> None:
    assert by_rule(SESSION, "short", view_of(State(), *LANES)) == TO_CHAMPION


@pytest.mark.parametrize("lane", LANES)
def test_a_cursor_names_the_lane_of_its_question(lane: Lane) -> None:
    entry = make_entry(destination=Destination(lane, "new", 7), place=Place(1, 2))
    point = entry.opened().resume_point
    assert adopt(point, SESSION, "c", NOW).publication.destination.lane == lane
