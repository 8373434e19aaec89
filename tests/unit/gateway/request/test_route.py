"""A request takes the lane that the registry's rule says, where a worker of it is there."""

import pytest

from gateway.request.cursor import Place
from gateway.request.resumption import adopt
from gateway.request.route import Route, route, route_in
from shared.versions.state import Rule, State
from shared.wire.lanes import CHAMPION, LANES, Lane
from shared.wire.session_key import SessionKey
from tests.support.builders.gateway import NOW, SESSION, make_entry

STATE = State(
    epoch=7,
    aliases={"champion": "old", "canary": "new", "previous": "older"},
    rule=Rule(salt="a", share=0.5, control=True),
)
SESSIONS = [SessionKey("shop", f"s{number}") for number in range(50)]


def routes(live: set[Lane]) -> set[Route]:
    return {route(STATE, session, live.__contains__) for session in SESSIONS}


def test_canary_and_control_get_their_halves_and_name_their_versions() -> None:
    assert routes({"canary", "control"}) == {Route("canary", "new", 7), Route("control", "old", 7)}


def test_a_lane_whose_workers_are_gone_costs_nobody_an_answer() -> None:
    assert routes({"control"}) == {Route(CHAMPION, "old", 7), Route("control", "old", 7)}
    assert routes(set()) == {Route(CHAMPION, "old", 7)}


def test_without_a_registry_no_version_is_named() -> None:
    assert route(State(), SESSION, LANES.__contains__) == Route()
    assert route_in(STATE, "light") == Route("light", None, 7)


@pytest.mark.parametrize("lane", LANES)
def test_a_cursor_knows_the_lane_in_which_the_question_is(lane: Lane) -> None:
    entry = make_entry(route=Route(lane, "new", 7), place=Place(1, 2))
    point = entry.opened().resume_point
    assert adopt(point, SESSION, "c", NOW).publication.route.lane == lane
