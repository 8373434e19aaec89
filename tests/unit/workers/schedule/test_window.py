"""The micro-batch window waits for further requests, never beyond its bound, its call's room, or any request's
slack."""

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.traces.costs import CPU, EngineCosts
from ops.traces.trace import Request
from ops.virtual_worker.simulator import Run, Simulator
from ops.virtual_worker.virtual_engine import STOP, VirtualEngine
from tests.support.fakes.simulated import request, trace_of
from workers.schedule.costs import CostModel
from workers.schedule.goodput import build_scheduler, make_window
from workers.schedule.lengths import OutputLengths
from workers.schedule.scheduler import SchedulerLimits
from workers.schedule.window import Window

LIMITS = SchedulerLimits(num_slots=4, prefill_chunk_tokens=64, max_prefill_rows=4, stop_token_ids=frozenset({STOP}))
STEPS = st.lists(
    st.tuples(
        st.floats(0, 60),  # since the step before
        st.booleans(),  # a request arrives
        st.booleans(),  # to an empty window
        st.booleans(),  # others run
        st.integers(1, 6),  # rows
        st.integers(1, 40),  # tokens each
        st.integers(1, 8),  # free slots
        st.floats(-100, 1_000),  # slack
    ),
    max_size=30,
)


def opened(*arrivals: float) -> Window:
    """A window that the last arrival opened."""
    window = Window(max_rows=4, max_tokens=100)
    for unix_ms in arrivals:
        window.arrived(unix_ms, alone=True)
    return window


def holds(window: Window, now_unix_ms: float, **other: Any) -> bool:
    waiting: dict[str, Any] = {"rows": 1, "tokens": 10, "room": 8, "slack_ms": 1_000.0, "busy": False, **other}
    return window.holds(now_unix_ms, **waiting)


@given(steps=STEPS)
def test_whoever_comes_when_the_bounds_hold(steps: list[tuple[float, bool, bool, bool, int, int, int, float]]) -> None:
    """The window is held only before the oldest's bound, with room in the call and the slots, with comfortable slack,
    and no longer than announced. Once closed it stays closed until a request arrives at an empty queue."""
    window = opened()
    now, opened_ms, said, closed = 0.0, 0.0, float("inf"), True
    for since_ms, comes, alone, busy, rows, each, room, slack_ms in steps:
        now += since_ms
        if comes:
            window.arrived(now, alone=alone)
            if alone:
                opened_ms, said, closed = now, float("inf"), False
        held = window.holds(now, rows=rows, tokens=rows * each, room=room, slack_ms=slack_ms, busy=busy)
        assert not (held and closed)
        closed = not held
        closes = window.closes_unix_ms
        assert (closes is not None) == held
        if closes is None:
            continue
        assert now < closes <= min(opened_ms + (10.0 if busy else 50.0), said)
        assert rows < min(4, room)
        assert rows * each < 100
        assert slack_ms >= 4 * (closes - now)
        said = closes


@pytest.mark.parametrize(("busy", "bound"), [(False, 50.0), (True, 10.0)])
def test_it_closes_by_the_clock(busy: bool, bound: float) -> None:
    """It closes 10 ms after the oldest arrived while others run, else after 50 ms, also without further arrivals."""
    window = opened(990.0, 1_000.0)
    window.arrived(1_005.0, alone=False)
    assert holds(window, 1_005.0, rows=2, busy=busy)
    assert window.closes_unix_ms == 1_000.0 + bound
    assert holds(window, 999.0 + bound, rows=2, busy=busy)
    assert not holds(window, 1_000.0 + bound, rows=2, busy=busy)
    assert window.closes_unix_ms is None


@pytest.mark.parametrize(
    ("arrivals", "held"),
    [
        ((1_000.0,), False),  # no earlier arrival: the rate is unknown
        ((950.0, 1_000.0), True),
        ((949.0, 1_000.0), False),
        ((700.0, 900.0, 1_000.0), False),
        ((860.0, 900.0, 910.0, 1_000.0), True),  # the last gap is long, their mean is not
    ],
)
def test_nobody_is_held_where_nobody_is_to_be_expected(arrivals: tuple[float, ...], held: bool) -> None:
    """The next arrives after the mean of the recent gaps, and is expected within the window."""
    assert holds(opened(*arrivals), 1_000.0) is held


@pytest.mark.parametrize(
    "full",
    [
        {"rows": 4, "tokens": 4},
        {"rows": 2, "tokens": 100},
        {"rows": 2, "tokens": 70},  # a third of 35 would not fit
        {"room": 1},
    ],
)
def test_it_closes_at_once_when_no_other_would_fit(full: dict[str, int]) -> None:
    """By rows, by tokens, or into the free slots."""
    window = opened(0.0, 0.0)
    assert holds(window, 0.0)
    assert not holds(window, 1.0, **full)


def _run(requests: list[Request], costs: EngineCosts) -> Run:
    model = CostModel.from_state(costs.table)
    window = make_window("adaptive", LIMITS)
    scheduler = build_scheduler(limits=LIMITS, costs=model, lengths=OutputLengths(), window=window)
    return Simulator(trace=trace_of(*requests), scheduler=scheduler, engine=VirtualEngine(costs, 0.0, Random(0))).run()


@given(
    arrivals=st.lists(st.floats(0, 2_000), min_size=1, max_size=20),
    prompts=st.lists(st.integers(1, 80), min_size=20, max_size=20),
    deadlines=st.lists(st.integers(1, 4_000), min_size=20, max_size=20),
)
def test_nobody_is_left_waiting(arrivals: list[float], prompts: list[int], deadlines: list[int]) -> None:
    """For any arrivals and deadlines the loop always has a next time to check, and every request ends."""
    offered = [
        request(at, prompt=prompt, soft=ms, hard=ms)
        for at, prompt, ms in zip(arrivals, prompts, deadlines, strict=False)
    ]
    assert len(_run(offered, CPU).endings) == len(offered)
