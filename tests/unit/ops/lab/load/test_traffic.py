"""Customers as the traces have them: their rates, their conversations, the same again by the same seed."""

from collections import defaultdict
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.lab.client.outcome import Outcome
from ops.lab.client.plan import most_at_once
from ops.lab.load.traffic import phases, planned
from ops.traces.drawn import KINDS, traffic
from ops.traces.mixes import Promise
from ops.traces.trace import Trace
from tests.unit.examples import examples

PROMISE = Promise(first_token_ms=2_000, deadline_ms=9_000)
NAMES = st.sampled_from(sorted(KINDS))


def made(name: str, per_s: float = 20.0, seconds: float = 120.0, seed: int = 1) -> Trace:
    return traffic(name, per_s=per_s, seconds=seconds, seed=seed, promise=PROMISE)


def per_s(trace: Trace, start_s: float, end_s: float) -> float:
    return sum(start_s <= one.arrival_ms / 1_000 < end_s for one in trace.requests) / (end_s - start_s)


@settings(max_examples=examples(40), deadline=None)
@given(NAMES, st.floats(0.5, 30), st.floats(5, 90), st.integers(0, 10**6))
def test_the_same_seed_gives_the_same_traffic_ascending_within_its_time(
    name: str, rate: float, seconds: float, seed: int
) -> None:
    trace = made(name, rate, seconds, seed)
    assert trace == made(name, rate, seconds, seed)
    times = [one.arrival_ms for one in trace.requests]
    assert times == sorted(times)
    assert all(0 <= at < seconds * 1_000 for at in times)


@settings(max_examples=6, deadline=None)
@given(st.sampled_from(["poisson", "spread", "sessions"]), st.integers(0, 10**6))
def test_steady_traffic_keeps_its_rate_from_beginning_to_end(name: str, seed: int) -> None:
    """Conversations that began earlier continue at the beginning, so it is no quieter than the end. Their questions
    come in clusters: five standard deviations are allowed.
    """
    trace = made(name, per_s=40.0, seconds=600.0, seed=seed)
    for start_s, end_s in ((0, 100), (500, 600)):
        assert per_s(trace, start_s, end_s) == pytest.approx(40.0, abs=5 * (40 * 5.5 / 100) ** 0.5)


def test_a_conversation_has_several_questions_with_time_to_think_between() -> None:
    asked: defaultdict[str, list[float]] = defaultdict(list)
    for one in made("sessions", per_s=20.0, seconds=3_600.0).requests:
        assert one.session is not None
        asked[one.session].append(one.arrival_ms)
    whole = {name: times for name, times in asked.items() if 1_400_000 < times[0] < 2_200_000}
    gaps = [later - earlier for times in whole.values() for earlier, later in pairwise(times)]
    assert max(map(len, whole.values())) <= 12
    assert sum(map(len, whole.values())) / len(whole) == pytest.approx(3.43, rel=0.05)
    assert sum(gaps) / len(gaps) == pytest.approx(20_000, rel=0.06)
    assert max(gaps) <= 120_000 + 1e-6


@settings(max_examples=4, deadline=None)
@given(st.integers(0, 10**6))
def test_a_promotion_brings_five_times_as_many_within_ten_seconds(seed: int) -> None:
    trace = made("promotion", per_s=100.0, seconds=360.0, seed=seed)
    assert per_s(trace, 0, 120) == pytest.approx(40, rel=0.1)
    assert per_s(trace, 120, 130) == pytest.approx(120, rel=0.2)  # on its way up
    assert per_s(trace, 130, 240) == pytest.approx(200, rel=0.1)
    assert per_s(trace, 300, 360) == pytest.approx(40, rel=0.15)
    assert trace.surges == ((120_000, 300_000),)


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10**6))
def test_lengths_are_spread_from_30_to_400_tokens_evenly_by_their_order_of_magnitude(seed: int) -> None:
    lengths = sorted(one.prompt_tokens for one in made("spread", seed=seed).requests)
    assert lengths[0] >= 30
    assert lengths[-1] <= 400
    assert lengths[len(lengths) // 2] == pytest.approx((30 * 400) ** 0.5, rel=0.2)


@pytest.mark.parametrize("name", sorted(KINDS))
def test_a_load_asks_what_the_trace_says(name: str) -> None:
    """Each at its time, in its conversation, as long and with the deadline that it has there."""
    trace = made(name, per_s=5.0, seconds=20.0)
    plan = planned(trace)
    assert [one.at_s * 1_000 for one in plan] == pytest.approx([one.arrival_ms for one in trace.requests])
    assert [len(one.request.input.split()) for one in plan] == [one.prompt_tokens for one in trace.requests]
    assert [one.request.max_output_tokens for one in plan] == [one.output_tokens for one in trace.requests]
    assert [one.request.deadline_ms for one in plan] == [one.deadline_ms for one in trace.requests]
    sessions = {one.session for one in trace.requests}
    assert len({one.session for one in plan}) == (len(plan) if sessions == {None} else len(sessions))
    assert len({one.request.event_id for one in plan}) == len(plan)
    assert 1 <= most_at_once(plan) <= len(plan)


def test_phases_are_the_surges_and_the_rest() -> None:
    trace = made("surge", per_s=5.0, seconds=20.0)
    outcomes = [Outcome(scheduled_s=one.arrival_ms / 1_000, deadline_ms=1) for one in trace.requests]
    found = phases(trace, outcomes)
    assert all(4 <= one.scheduled_s < 16 for one in found["in the surge"])
    assert len(found["in the surge"]) + len(found["at other times"]) == len(outcomes)
    steady = made("poisson", per_s=5.0, seconds=2.0)
    assert list(phases(steady, [])) == ["all"]
