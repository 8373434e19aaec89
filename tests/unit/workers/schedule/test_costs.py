"""Predicted times: the measured law times one factor that is learned from calls, and bounded for any observation."""

import math
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.examples import examples
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.schedule.costs import CostModel, CostsKey, CostTable, Law
from workers.schedule.work import Work

KEY = CostsKey(
    engine="onnx",
    model="small",
    revision="1",
    precision="int8",
    num_slots=8,
    max_length=2_048,
    threads=2,
    cpu="a cpu",
    num_cores=2,
)
DECODE = Law((4.0, 1.2, 0.0019), error=0.03)
PREFILL = Law((5.0, 0.47, 0.003, 0.00023), error=0.02)

SEEDS = st.integers(0, 2**32)
TIMES_MS = st.one_of(
    st.floats(1e-4, 1e5), st.sampled_from([0.0, -1.0, math.inf, math.nan, 1e-300, 1e300])
)  # clocks go wrong too
ROWS = st.integers(1, 512)
TOKENS = st.integers(1, 100_000)
STEPS = [(rows, rows * past) for rows in (1, 2, 4, 8, 16) for past in (16, 100, 300, 600)]
CALLS = [(8, 0, 1), (128, 0, 1), (1_024, 0, 1), (64, 0, 4), (16, 512, 1), (128, 1_024, 1)]


def decode_ms(rows: int, context: int) -> float:
    return 4.0 + 1.2 * rows + 0.0019 * context


def prefill_ms(tokens: int, past: int, rows: int) -> float:
    return 5.0 + 0.47 * tokens + 0.003 * past + 0.00023 * tokens * (past + tokens / (2 * rows))


def calibrated() -> CostModel:
    return CostModel(decode=DECODE, prefill=PREFILL)


def teach_decode(
    model: CostModel, count: int, random: Random, *, slower: float = 1.0, noise: float = 0.03, stalled: float = 0.0
) -> None:
    """Observe steps: some rows of some lengths; the share `stalled` takes five times as long."""
    for _ in range(count):
        rows = random.randint(1, 8)
        context = rows * random.randint(16, 600)
        held_up = 5.0 if random.random() < stalled else 1.0
        ms = slower * decode_ms(rows, context) * max(0.5, random.gauss(1, noise)) * held_up
        model.observe(ms, Work(rows=rows, context=context))


def decode_factors(model: CostModel) -> list[float]:
    """How many times longer than by the law steps of all sizes are predicted to take."""
    return [model.decode_ms(*step) / decode_ms(*step) for step in STEPS]


def prefill_factors(model: CostModel) -> list[float]:
    return [
        model.prefill_ms(tokens, past=past, rows=rows) / prefill_ms(tokens, past, rows) for tokens, past, rows in CALLS
    ]


def the_factor(factors: list[float]) -> float:
    """One for all sizes, or the test fails."""
    assert factors == pytest.approx([factors[0]] * len(factors))
    return factors[0]


# --- the pace


@settings(max_examples=examples(50))
@given(seed=SEEDS, slower=st.sampled_from([0.5, 2.0]))
def test_a_machine_that_changes_its_speed_is_followed_within_fifty_calls(seed: int, slower: float) -> None:
    """Each kind of call has a separate pace."""
    random, model = Random(seed), calibrated()
    teach_decode(model, 200, random)
    teach_decode(model, 50, random, slower=slower)
    assert the_factor(decode_factors(model)) == pytest.approx(slower, rel=0.06)
    assert the_factor(prefill_factors(model)) == pytest.approx(1)


@pytest.mark.parametrize("slower", [0.001, 0.1, 10.0, 100.0])
def test_an_engine_that_the_prior_does_not_know_is_followed(slower: float) -> None:
    """A fake engine needs a thousandth of it. The recent prediction error is reported."""
    model = CostModel.prior()
    for _ in range(500):
        model.observe(slower * 10.0, Work(rows=4, context=1_000))
        model.observe(slower * 50.0, Work.of_prompt(100))
    assert model.decode_ms(4, 1_000) == pytest.approx(slower * 10.0, rel=0.05)
    assert model.prefill_ms(100) == pytest.approx(slower * 50.0, rel=0.05)
    assert model.error_decode < 0.01
    for _ in range(5):
        model.observe(4 * model.decode_ms(4, 1_000), Work(rows=4, context=1_000))
    assert 0.15 < model.error_decode < 0.2


def test_thousands_of_steps_all_alike_do_not_bend_the_law() -> None:
    """Full steps in a busy hour take 13 % longer than by the law: then so does any other, as far as is known."""
    random, model = Random(1), calibrated()
    for _ in range(5_000):
        model.observe(1.13 * decode_ms(8, 2_000) * random.gauss(1, 0.03), Work(rows=8, context=2_000))
    factor = the_factor(decode_factors(model))
    assert factor == pytest.approx(1.13, rel=0.03)
    assert model.decode_ms(1, 250) == pytest.approx(factor * decode_ms(1, 250))
    assert model.decode_ms(16, 4_000) == pytest.approx(factor * decode_ms(16, 4_000))


@pytest.mark.parametrize("held_up", [5.0, 100.0])
def test_one_call_held_up_hardly_moves_a_prediction(held_up: float) -> None:
    """Nor the first of all."""
    model = calibrated()
    model.observe(5 * decode_ms(8, 2_000), Work(rows=8, context=2_000))
    assert the_factor(decode_factors(model)) == pytest.approx(1, rel=0.015)
    teach_decode(model, 200, Random(1))
    before = model.decode_ms(8, 2_000)
    model.observe(held_up * before, Work(rows=8, context=2_000))
    assert model.decode_ms(8, 2_000) == pytest.approx(before, rel=0.015)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_steps_held_up_fivefold_do_not_spoil_the_predictions(seed: int) -> None:
    """One step in ten: the mean of the measurements is 40 % above the law."""
    model = calibrated()
    teach_decode(model, 300, Random(seed), stalled=0.1)
    assert the_factor(decode_factors(model)) == pytest.approx(1, rel=0.12)


# --- mixed calls


def test_in_a_mixed_call_a_row_costs_as_a_prompts_token_and_both_paces_learn() -> None:
    model = CostModel(decode=DECODE, prefill=PREFILL, mixes=True, mixed_ms=1.5)
    chunks = [
        PrefillChunk(slot=slot, past=past, token_ids=[5] * tokens, sampling=None)
        for slot, past, tokens in ((7, 100, 30), (3, 0, 20))
    ]
    rows = [DecodeRow(slot=slot, past=50 + slot, token_id=5, sampling=Sampling()) for slot in range(2)]
    decode, prefill = decode_ms(2, 101), 5.0 + 0.47 * 50 + 0.003 * 100 + 0.00023 * (30 * 115 + 20 * 10)
    work, together = Work.of_mixed(chunks, rows), prefill + 0.47 * 2 + 0.0019 * 101 + 1.5
    assert model.ms(work) == pytest.approx(together)
    assert model.decode_share(work) == pytest.approx(decode / (decode + prefill))
    for _ in range(500):
        model.observe(2 * together, work)
    assert model.ms(work) == pytest.approx(2 * together, rel=0.01)
    assert model.decode_ms(2, 101) == pytest.approx(2 * decode, rel=0.1)
    assert model.prefill_ms(40) == pytest.approx(2 * prefill_ms(40, 0, 1), rel=0.1)
    assert model.scaled(0.5).ms(work) == pytest.approx(model.ms(work) / 2)


@given(rows=ROWS, context=TOKENS, tokens=TOKENS, past=st.integers(0, 100_000), mixed_ms=st.floats(0, 1e6))
def test_a_mixed_call_is_between_its_longer_part_and_both(
    rows: int, context: int, tokens: int, past: int, mixed_ms: float
) -> None:
    """This holds for any measured costs."""
    model = CostModel(decode=DECODE, prefill=PREFILL, mixes=True, mixed_ms=mixed_ms)
    decode, prefill = model.decode_ms(rows, context), model.prefill_ms(tokens, past=past)
    work = Work(rows=rows, context=context, tokens=tokens, past=past, pairs=tokens * (past + tokens / 2))
    assert max(decode, prefill) <= model.ms(work) <= decode + prefill


# --- it stays sane

OBSERVATIONS = st.lists(st.tuples(TIMES_MS, ROWS, TOKENS, st.integers(0, 100_000)), max_size=60)


def taught(observations: list[tuple[float, int, int, int]]) -> CostModel:
    model = calibrated()
    for ms, rows, tokens, past in observations:
        model.observe(ms, Work(rows=rows, context=tokens))
        model.observe(ms, Work.of_prompt(tokens, past=past, rows=rows))
    return model


@given(observations=OBSERVATIONS, rows=ROWS, tokens=TOKENS, past=st.integers(0, 100_000), more=st.integers(1, 1_000))
def test_more_work_is_never_predicted_to_take_less(
    observations: list[tuple[float, int, int, int]], rows: int, tokens: int, past: int, more: int
) -> None:
    """The predictions are also bounded."""
    model = taught(observations)
    step = model.decode_ms(rows, tokens)
    assert 0 < step < math.inf
    assert 0 < model.prefill_ms(tokens, past=past, rows=rows) < math.inf
    assert 0 <= model.error_decode <= 1
    assert 0 <= model.error_prefill <= 1
    assert model.decode_ms(rows + more, tokens) >= step
    assert model.decode_ms(rows, tokens + more) >= step
    call = model.prefill_ms(rows * tokens, past=past, rows=rows)
    assert model.prefill_ms(rows * (tokens + more), past=past, rows=rows) >= call
    assert model.prefill_ms(rows * tokens, past=past + more, rows=rows) >= call
    # Rounding: the pairs of a row are divided out of the call's.
    assert model.prefill_ms((rows + more) * tokens, past=past, rows=rows + more) >= call * (1 - 1e-12)


# --- it is kept


@given(observations=OBSERVATIONS)
def test_the_law_is_kept_and_the_pace_is_not(observations: list[tuple[float, int, int, int]]) -> None:
    """The machine's present speed is no evidence for the next start."""
    table = msgspec.json.decode(msgspec.json.encode(taught(observations).state(KEY)), type=CostTable)
    assert table == calibrated().state(KEY)
    again = CostModel.from_state(table)
    assert again.state(KEY) == table
    assert the_factor(decode_factors(again)) == pytest.approx(1)
    assert the_factor(prefill_factors(again)) == pytest.approx(1)


@pytest.mark.parametrize(
    "change", [{"decode_ms": 0.0}, {"prefill_ms_per_token": -1.0}, {"error_decode": 1.5}, {"x": 1}]
)
def test_a_table_out_of_range_is_refused(change: dict[str, float]) -> None:
    table = msgspec.to_builtins(calibrated().state(KEY))
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({**table, **change}, CostTable)
