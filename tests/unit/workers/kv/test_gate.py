"""Loading or computing: the cheaper by what was learned; off after a few slow loads, on again by itself."""

import math
from collections.abc import Callable
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from workers.kv.gate import LoadDecision, LoadGate

BLOCK = 700_000
INTERVAL_MS = 1_000.0
SIZES = st.lists(st.integers(0, 2_000_000), max_size=40)
LAWS = st.tuples(st.floats(0.1, 3), st.floats(0, 2e-6))  # rtt_ms, ms a byte
EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("load"), st.integers(0, 50_000_000), st.floats(allow_nan=True, allow_infinity=True)),
        st.tuples(st.just("load"), st.integers(0, 50_000_000), st.floats(0, 1e4)),
        st.tuples(st.just("ask"), SIZES, st.floats(0, 1e4)),
    ),
    max_size=40,
)

Law = Callable[[int], float]


def affine(rtt_ms: float, ms_per_byte: float) -> Law:
    return lambda num_bytes: rtt_ms + ms_per_byte * num_bytes


def learned(law: Law, *, seed: int, loads: int = 20) -> LoadGate:
    """Return a gate that has observed this many loads of 1 to 32 blocks."""
    gate = LoadGate(probe_interval_ms=INTERVAL_MS)
    random = Random(seed)
    for _ in range(loads):
        num_bytes = BLOCK * random.randint(1, 32)
        gate.observe(num_bytes, law(num_bytes), 0)
    return gate


class Conversations:
    """Requests of 8 to 32 blocks, computed in 16 ms a block, or loaded as the gate decides by a law with some noise."""

    def __init__(self, *, seed: int, gap_ms: float = 300.0) -> None:
        self.gate = LoadGate(probe_interval_ms=INTERVAL_MS)
        self.random = Random(seed)
        self.gap_ms = gap_ms
        self.now = 1e12

    def ask(self, law: Law) -> tuple[LoadDecision, int]:
        """One request: what was decided, and of how many blocks."""
        self.now += self.gap_ms
        blocks = self.random.randint(8, 32)
        decision = self.gate.decide([BLOCK] * blocks, 16.0 * blocks, self.now)
        if decision.num_blocks:
            num_bytes = BLOCK * decision.num_blocks
            self.gate.observe(num_bytes, law(num_bytes) * self.random.uniform(1, 1.3), self.now)
        return decision, blocks


@given(events=EVENTS, gaps=st.lists(st.floats(-2_000, 2_000), min_size=40, max_size=40))
def test_all_is_loaded_exactly_where_that_is_cheaper_and_else_nothing_but_a_small_probe(
    events: list[tuple[str, int | list[int], float]], gaps: list[float]
) -> None:
    """This holds for all observations and for all clocks."""
    gate = LoadGate(probe_interval_ms=INTERVAL_MS)
    now = 1e12
    for (_, what, ms), gap in zip(events, gaps, strict=False):
        now += gap
        if isinstance(what, int):
            gate.observe(what, ms, now)
            assert 0 <= gate.load_ms(what) < math.inf
            continue
        decision = gate.decide(what, ms, now)
        assert decision.load_ms == gate.load_ms(sum(what))
        assert decision.recompute_ms == ms
        if decision.probe:
            assert decision.load_ms >= ms
            assert 1 <= decision.num_blocks <= min(4, len(what))
        elif what and decision.load_ms < ms:
            assert decision.num_blocks == len(what)
        else:
            assert decision.num_blocks == 0


def test_the_store_is_not_even_asked_where_a_round_trip_takes_longer_than_computing() -> None:
    gate = LoadGate(probe_interval_ms=INTERVAL_MS)
    for _ in range(3):
        gate.observe(BLOCK, 50.0, 0)
    assert not gate.worth_asking(49.0, 1)
    assert gate.worth_asking(51.0, 1)
    assert gate.worth_asking(49.0, INTERVAL_MS)


@given(law=LAWS, seed=st.integers(0, 999), ms=st.floats(0, 1e5), loads=st.integers(0, 20), blocks=st.integers(1, 32))
def test_one_stall_does_not_turn_it_off(
    law: tuple[float, float], seed: int, ms: float, loads: int, blocks: int
) -> None:
    """Not even as the very first load: with it or without, the next is loaded, being cheaper by two thirds."""
    gate = learned(affine(*law), seed=seed, loads=loads)
    gate.observe(BLOCK * blocks, ms, 0)
    num_bytes = BLOCK * 16
    assert gate.decide([BLOCK] * 16, 3 * affine(*law)(num_bytes), 0).num_blocks == 16


@given(
    law=LAWS,
    seed=st.integers(0, 999),
    slow=st.one_of(
        st.tuples(st.floats(600, 5_000), st.floats(0, 2e-6)),  # every answer late
        st.tuples(st.floats(0.1, 3), st.floats(5e-5, 1e-3)),  # every byte
    ),
)
def test_a_store_that_becomes_slow_costs_few_loads_and_one_that_is_fast_again_is_used_soon(
    law: tuple[float, float], seed: int, slow: tuple[float, float]
) -> None:
    talks = Conversations(seed=seed)
    for _ in range(30):
        decision, blocks = talks.ask(affine(*law))
        assert decision.num_blocks == blocks

    asked = [talks.ask(affine(*slow))[0] for _ in range(60)]
    assert sum(decision.num_blocks > 0 and not decision.probe for decision in asked) <= 8
    assert all(decision.num_blocks == 0 or decision.probe for decision in asked[-30:])
    # The requests are 0.3 s apart: every fourth is a probe, and sometimes one follows immediately.
    assert 7 <= sum(decision.probe for decision in asked[-30:]) <= 12

    for _ in range(30):
        talks.ask(affine(*law))
    for _ in range(30):
        decision, blocks = talks.ask(affine(*law))
        assert decision.num_blocks == blocks


def test_a_fast_probe_calls_for_the_next_at_once() -> None:
    gate = LoadGate(probe_interval_ms=INTERVAL_MS)
    for _ in range(5):
        gate.observe(BLOCK, 500.0, 0)
    for number in range(3):
        now = INTERVAL_MS + number
        decision = gate.decide([BLOCK] * 9, 100.0, now)
        assert decision.probe
        gate.observe(BLOCK * decision.num_blocks, 1.0, now)
    assert gate.decide([BLOCK] * 9, 100.0, INTERVAL_MS + 3).num_blocks == 9


@given(ms=st.sampled_from([math.nan, math.inf, -math.inf, -1.0]))
def test_a_time_that_is_no_time_is_not_learned(ms: float) -> None:
    gate = learned(affine(1.0, 1e-6), seed=1)
    before = gate.load_ms(BLOCK)
    for _ in range(10):
        gate.observe(BLOCK, ms, 0)
    assert gate.load_ms(BLOCK) == before
