"""The micro-batch window: held for others, never beyond its bound, its call's room, or anybody's slack."""

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ops.simulate.experiment import Experiment
from ops.simulate.rows import Row
from ops.simulate.simulator import Outcome, Run, Simulator
from ops.simulate.virtual_engine import STOP, VirtualEngine
from ops.simulate.windows import Choice, on_front, read_windows, windows_table
from ops.traces.costs import CPU, GPU, EngineCosts
from ops.traces.trace import Request
from shared.settings import Settings
from tests.support.fakes.scheduler_model import FlatCosts
from tests.support.fakes.simulated import PLAIN, request, trace_of
from workers.schedule.costs import CostModel
from workers.schedule.lengths import OutputLengths
from workers.schedule.policies import WINDOWS, build_scheduler, make_window
from workers.schedule.scheduler import SchedulerLimits
from workers.schedule.window import COMFORT, Gaps, Opening, Rule, Waiting, Window, WindowBounds, adaptive, fixed

BOUNDS = WindowBounds(busy_ms=10.0, quiet_ms=50.0, max_rows=4, max_tokens=100)
LIMITS = SchedulerLimits(num_slots=4, prefill_chunk_tokens=64, max_prefill_rows=4, stop_token_ids=frozenset({STOP}))

SHARES = st.one_of(st.floats(0, 1), st.sampled_from([math.nan, math.inf, -math.inf, -1.0, 7.0]))
STEPS = st.lists(
    st.tuples(
        st.floats(0, 60),  # since the step before
        st.booleans(),  # somebody comes
        st.booleans(),  # to nobody
        st.booleans(),  # others run
        st.integers(1, 6),  # rows
        st.integers(1, 40),  # tokens each
        st.integers(1, 8),  # free slots
        st.floats(-100, 1_000),  # slack
    ),
    max_size=30,
)


def window_of(rule: Rule = fixed, bounds: WindowBounds = BOUNDS) -> Window:
    return Window(rule, bounds, FlatCosts())


def waiting(rows: int = 1, tokens: int = 10, *, slack: float = 1_000.0, free: int = 8, busy: bool = False) -> Waiting:
    return Waiting(rows=rows, tokens=tokens, slack_ms=slack, free_slots=free, busy=busy)


@given(share=SHARES, steps=STEPS)
def test_whatever_the_rule_says_the_bounds_hold(
    share: float, steps: list[tuple[float, bool, bool, bool, int, int, int, float]]
) -> None:
    """Held means: before the oldest's bound, room in the call and the slots, comfortable slack, and not longer than
    was said before. What is closed stays closed until somebody comes to nobody."""
    window = window_of(lambda _opening: share)
    now, opened, said, closed = 0.0, 0.0, math.inf, True
    for since_ms, comes, alone, busy, rows, each, free, slack in steps:
        now += since_ms
        if comes:
            window.arrived(now, alone=alone)
            if alone:
                opened, said, closed = now, math.inf, False
        held = window.holds(waiting(rows, rows * each, slack=slack, free=free, busy=busy), now)
        assert not (held and closed)
        closed = closed or not held
        closes = window.closes_unix_ms
        assert (closes is not None) == held
        if closes is None:
            continue
        assert now < closes <= min(opened + (BOUNDS.busy_ms if busy else BOUNDS.quiet_ms), said)
        assert rows < min(BOUNDS.max_rows, free)
        assert rows * each < BOUNDS.max_tokens
        assert slack >= COMFORT * (closes - now)
        said = closes


@pytest.mark.parametrize(("busy", "bound"), [(False, 50.0), (True, 10.0)])
def test_it_closes_by_the_clock(busy: bool, bound: float) -> None:
    """So long after the oldest came, though others came later, and nobody more does."""
    window = window_of()
    window.arrived(1_000.0, alone=True)
    window.arrived(1_005.0, alone=False)
    assert window.holds(waiting(2, busy=busy), 1_005.0)
    assert window.closes_unix_ms == 1_000.0 + bound
    assert window.holds(waiting(2, busy=busy), 999.0 + bound)
    assert not window.holds(waiting(2, busy=busy), 1_000.0 + bound)
    assert window.closes_unix_ms is None


def test_a_clock_that_is_put_back_holds_nobody() -> None:
    """A window that opens in the future is closed."""
    window = window_of()
    window.arrived(1_000.0, alone=True)
    assert window.holds(waiting(), 1_001.0)
    assert not window.holds(waiting(), 999.0)


def test_it_becomes_shorter_when_others_begin_to_run_and_not_longer_when_they_end() -> None:
    """50 ms while quiet, 10 ms while busy, of which the least counts."""
    window = window_of()
    window.arrived(0.0, alone=True)
    assert window.holds(waiting(busy=False), 0.0)
    assert window.holds(waiting(busy=True), 1.0)
    assert window.holds(waiting(busy=False), 2.0)
    assert window.closes_unix_ms == 10.0


@pytest.mark.parametrize(
    "full",
    [
        waiting(rows=4, tokens=4),
        waiting(rows=2, tokens=100),
        waiting(rows=2, tokens=70),  # a third of 35 would not fit
        waiting(rows=1, free=1),
    ],
)
def test_it_closes_at_once_when_no_other_would_fit(full: Waiting) -> None:
    """By rows, by tokens, or into the free slots."""
    window = window_of()
    window.arrived(0.0, alone=True)
    assert window.holds(waiting(), 0.0)
    assert not window.holds(full, 1.0)


@pytest.mark.parametrize("busy", [True, False])
def test_a_call_that_would_stall_decoding_is_full(busy: bool) -> None:
    """Only while others decode: a prompt token takes a hundredth of a millisecond, so 50 take half of one."""
    bounds = WindowBounds(busy_ms=10.0, quiet_ms=50.0, max_rows=4, max_tokens=100, stall_ms=0.5)
    window = window_of(bounds=bounds)
    window.arrived(0.0, alone=True)
    assert window.holds(waiting(rows=1, tokens=30, busy=busy), 0.0) is not busy


def test_it_closes_at_once_when_somebodys_slack_is_short() -> None:
    """Four times the rest of the window is comfortable, less is not."""
    window = window_of()
    window.arrived(0.0, alone=True)
    assert window.holds(waiting(slack=4 * 50.0), 0.0)
    assert not window.holds(waiting(slack=4 * 50.0 - 41.0), 10.0)


def opening(*, gap: float, bound: float = 50.0) -> Opening:
    return Opening(opened_unix_ms=0.0, bound_ms=bound, gap_ms=gap, rows=1, slack_ms=1_000.0, busy=False)


@pytest.mark.parametrize(("gap", "share"), [(0.0, 1.0), (50.0, 1.0), (50.1, 0.0), (math.inf, 0.0)])
def test_the_adaptive_one_is_nothing_where_nobody_is_to_be_expected(gap: float, share: float) -> None:
    """The bound where the next is expected within it."""
    assert adaptive(opening(gap=gap)) == share


def test_gaps_are_a_moving_mean_that_ages() -> None:
    """Unknown before two; a tenth of each new one; no shorter than it has been quiet."""
    gaps = Gaps()
    assert gaps.expected_ms(0.0) == math.inf
    gaps.add(0.0)
    assert gaps.expected_ms(5.0) == math.inf
    gaps.add(10.0)
    assert gaps.expected_ms(10.0) == 10.0
    gaps.add(30.0)
    assert gaps.expected_ms(30.0) == pytest.approx(11.0)
    assert gaps.expected_ms(130.0) == 100.0
    gaps.add(20.0)  # told late
    assert gaps.expected_ms(30.0) == pytest.approx(9.9)


def _run(rule: Rule | None, requests: list[Request], costs: EngineCosts = PLAIN) -> Run:
    model = CostModel.from_state(costs.table)
    window = Choice(name="tried", rule=rule).window(LIMITS, model) if rule is not None else None
    scheduler = build_scheduler("goodput", limits=LIMITS, costs=model, lengths=OutputLengths(), window=window)
    return Simulator(trace=trace_of(*requests), scheduler=scheduler, engine=VirtualEngine(costs, 0.0, Random(0))).run()


def test_the_last_of_a_burst_waits_for_the_clock_only() -> None:
    """Three at 0, 1 and 2 ms, then nobody: one call of all three when the first one's window has closed."""
    run = _run(fixed, [request(at, prompt=10) for at in (0.0, 1.0, 2.0)])
    assert [ending.first_token_ms for ending in run.endings] == [350.0] * 3


@given(
    arrivals=st.lists(st.floats(0, 2_000), min_size=1, max_size=20),
    prompts=st.lists(st.integers(1, 80), min_size=20, max_size=20),
    deadlines=st.lists(st.integers(1, 4_000), min_size=20, max_size=20),
    share=SHARES,
)
def test_nobody_is_left_waiting(arrivals: list[float], prompts: list[int], deadlines: list[int], share: float) -> None:
    """Whoever comes when, with whatever deadline, under whatever rule: the loop always knows when to look again, and
    every request ends."""
    offered = [
        request(at, prompt=prompt, soft=ms, hard=ms)
        for at, prompt, ms in zip(arrivals, prompts, deadlines, strict=False)
    ]
    assert len(_run(lambda _opening: share, offered, CPU).endings) == len(offered)


@given(deadlines=st.lists(st.integers(100, 1_000), min_size=1, max_size=5), prompt=st.integers(1, 50))
def test_a_window_loses_nobody_who_could_be_met(deadlines: list[int], prompt: int) -> None:
    """Alone with the machine, whoever is answered in time without a window is so with the longest one."""
    offered = [request(5_000.0 * place, prompt=prompt, soft=ms, hard=ms) for place, ms in enumerate(deadlines)]
    without, held = _run(None, offered), _run(fixed, offered)
    for one, other in zip(without.endings, held.endings, strict=True):
        assert (one.outcome is Outcome.IN_DEADLINE) == (other.outcome is Outcome.IN_DEADLINE)


def experiment_of(costs: EngineCosts, slots: int, seconds: float, *windows: Choice) -> Experiment:
    return Experiment(
        traces=("poisson",),
        loads=(0.5,),
        policies=("fcfs-continuous",),
        windows=windows,
        slots=slots,
        seconds=seconds,
        seed=1,
        lengths="predicted",
        costs=costs,
        settings=Settings(),
    )


@pytest.mark.parametrize(("costs", "slots", "seconds"), [(CPU, 16, 120.0), (GPU, 64, 10.0)])
def test_at_half_load_the_adaptive_one_is_no_slower_than_first_come(
    costs: EngineCosts, slots: int, seconds: float
) -> None:
    """TTFT p99 at most 1.05 times that of `fcfs-continuous`."""
    experiment = experiment_of(costs, slots, seconds, *read_windows("adaptive"))
    first_come, ours = experiment.run(lambda _done: None)
    assert first_come.ttft_p99_ms is not None
    assert ours.ttft_p99_ms is not None
    assert ours.ttft_p99_ms <= 1.05 * first_come.ttft_p99_ms


def test_no_window_and_one_of_nothing_are_the_same() -> None:
    """To the last digit."""
    requests = [request(10.0 * place, prompt=5 * place + 1) for place in range(10)]
    assert _run(None, requests) == _run(lambda _opening: 0.0, requests)


@pytest.mark.parametrize("kind", WINDOWS)
def test_each_kind_of_window_can_be_had(kind: str) -> None:
    """By its name; off is none at all."""
    window = make_window(kind, limits=LIMITS, costs=FlatCosts())  # type: ignore[arg-type]
    assert (window is None) == (kind == "off")


def test_windows_are_read_from_the_command_line() -> None:
    """Milliseconds, busy and quiet ones, and the rules by name."""
    read = read_windows("0,5,10/50,adaptive")
    assert [choice.name for choice in read] == ["0", "5", "10/50", "adaptive"]
    assert [(choice.busy_ms, choice.quiet_ms) for choice in read] == [(0, 0), (5, 5), (10, 50), (10, 50)]


def _row(window: str, p50: float | None, good: int) -> Row:
    return Row(
        trace="t", load=1.0, policy="goodput", seed=1, requests=100, model_in_deadline=good, model_late=0,
        fallback=100 - good, refused=0, ttft_p50_ms=p50, ttft_p99_ms=p50, lengths="known", costs="cpu", slots=4,
        goodput_per_s=1.0, window=window,
    )  # fmt: skip


def test_the_front_is_what_nothing_else_is_better_than() -> None:
    """Faster and at least as many answers, or as fast and more: then a window is not on it."""
    rows = [_row("0", 10.0, 90), _row("5", 12.0, 95), _row("10", 12.0, 94), _row("20", 11.0, 90)]
    assert [on_front(row, rows) for row in rows] == [True, True, False, False]
    assert windows_table(rows).count("yes") == 2


def test_a_window_that_answers_nothing_is_not_the_fastest() -> None:
    rows = [_row("0", 10.0, 90), _row("5", None, 0)]
    assert [on_front(row, rows) for row in rows] == [True, False]
