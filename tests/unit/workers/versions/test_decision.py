"""What a worker loads, serves and closes: it reaches what is wanted, and never closes a version that is needed."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.versions.state import State
from shared.wire.lanes import Lane
from workers.versions.decision import (
    Abandon,
    Action,
    Close,
    Load,
    Serve,
    Situation,
    next_action,
    wanted_beside,
)

KEPT_MS = 30_000.0
NAMES = st.sampled_from("abcd")


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    serving = draw(NAMES)
    loaded = draw(st.frozensets(NAMES)) | {serving}
    others = sorted(loaded - {serving})
    idle = draw(st.dictionaries(st.sampled_from(others), st.floats(0, 2 * KEPT_MS))) if others else {}
    return Situation(
        target=draw(NAMES),
        beside=tuple(draw(st.lists(NAMES, max_size=2))),
        serving=serving,
        loaded=loaded,
        idle=idle,
        loading=draw(st.none() | st.sampled_from([name for name in "abcde" if name not in loaded])),
        retry=draw(st.dictionaries(NAMES, st.floats(0, 2 * KEPT_MS))),
        kept_ms=KEPT_MS,
        previous=draw(st.none() | NAMES),
        cramped=draw(st.booleans()),
    )


def after(now: Situation, action: Action, now_unix_ms: float) -> Situation:
    """Return the situation after an action if nothing fails and no request is in flight."""
    match action:
        case Load(revision):
            return replace(now, loading=None, loaded=now.loaded | {revision}, idle={**now.idle, revision: now_unix_ms})
        case Serve(revision):
            idle = {name: since for name, since in now.idle.items() if name != revision}
            return replace(now, serving=revision, idle={**idle, now.serving: now_unix_ms})
        case Close(revision):
            idle = {name: since for name, since in now.idle.items() if name != revision}
            return replace(now, loaded=now.loaded - {revision}, idle=idle, cramped=False)
        case Abandon():
            return replace(now, loading=None)


@given(situations(), st.floats(0, 3 * KEPT_MS))
def test_each_action_is_one_that_may_be_done_now(now: Situation, now_unix_ms: float) -> None:
    wanted = {now.target, *now.beside}
    match next_action(now, now_unix_ms):
        case Serve(revision):
            assert revision in now.loaded
            assert revision == now.target != now.serving
        case Load(revision):
            assert now.loading is None
            assert revision in wanted - now.loaded
            assert now.retry.get(revision, 0.0) <= now_unix_ms
        case Abandon(revision):
            assert revision == now.loading
            assert revision not in wanted
        case Close(revision):
            assert revision in now.idle, "nobody waits for it"
            assert revision not in wanted | {now.serving}
            assert now.cramped or now_unix_ms - now.idle[revision] >= KEPT_MS
            assert now.cramped or revision != now.previous, "a return to it is instant while memory allows"


@given(situations())
def test_it_comes_to_what_is_wanted_and_then_rests(now: Situation) -> None:
    now_unix_ms, loading = 0.0, now.loading
    if loading in {now.target, *now.beside}:
        now = after(now, Load(loading), now_unix_ms)  # type: ignore[arg-type]
    for _ in range(40):
        action = next_action(now, now_unix_ms)
        if action is None:
            now_unix_ms += KEPT_MS
        else:
            now = after(now, action, now_unix_ms)
    assert now.serving == now.target
    busy = now.loaded - {now.serving} - now.idle.keys()
    kept = {now.previous} & now.loaded - busy
    assert now.loaded - busy == ({now.target, *now.beside} | kept) - busy
    assert next_action(now, now_unix_ms) is None


def test_the_previous_champion_gives_way_last_and_only_to_what_lacks_its_memory() -> None:
    now = Situation(
        target="new",
        serving="new",
        loaded=frozenset({"new", "previous", "older"}),
        idle={"previous": 0.0, "older": 0.0},
        retry={},
        kept_ms=KEPT_MS,
        previous="previous",
    )
    assert next_action(now, 10 * KEPT_MS) == Close("older")
    now = replace(now, loaded=now.loaded - {"older"}, idle={"previous": 0.0})
    assert next_action(now, 10 * KEPT_MS) is None
    assert next_action(replace(now, cramped=True), 0.0) == Close("previous")


STATE = State(aliases={"champion": "v1", "canary": "v2"}, loading={"champion": "v3"})


@pytest.mark.parametrize(
    ("lane", "serves", "beside"),
    [("champion", "v1", ("v3",)), ("canary", "v2", ()), ("control", "v1", ()), ("light", None, ())],
)
def test_a_lane_serves_its_alias_and_control_the_champions(lane: Lane, serves: str | None, beside: tuple[str]) -> None:
    assert STATE.revision(lane) == serves
    assert tuple(each for each in wanted_beside(STATE, STATE, lane) if each != serves) == beside


def test_what_a_later_state_serves_is_loaded_before_its_time() -> None:
    later = State(aliases={"champion": "v4"})
    assert wanted_beside(STATE, later, "champion") == ("v3", "v4")
