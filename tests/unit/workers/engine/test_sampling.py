"""Sampling is greedy, seeded and blind to its neighbours; the nucleus is the smallest that holds top-p."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shared.errors import EngineError
from workers.engine import Sampling
from workers.engine.sampling import invert, sample, uniform

SEEDS = st.integers(0, 2**63 - 1)
LOGITS = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 60)), elements=st.floats(-30, 30, width=32))


@given(LOGITS)
def test_greedy_takes_the_first_of_the_largest(logits: np.ndarray) -> None:
    rows = len(logits)
    assert sample(logits, [Sampling()] * rows, [3] * rows) == [int(np.flatnonzero(r == r.max())[0]) for r in logits]


@given(LOGITS, SEEDS, st.floats(0.05, 2), st.floats(0.01, 1))
def test_a_row_is_sampled_independently_of_others(
    logits: np.ndarray, seed: int, temperature: float, top_p: float
) -> None:
    samplings = [Sampling(temperature=temperature, top_p=top_p, seed=seed + row) for row in range(len(logits))]
    samplings[0] = Sampling()
    positions = list(range(10, 10 + len(logits)))
    together = sample(logits, samplings, positions)
    assert together == [
        sample(logits[row : row + 1], [samplings[row]], [positions[row]])[0] for row in range(len(logits))
    ]


@given(LOGITS, SEEDS, st.floats(0.05, 2), st.floats(0.01, 0.99))
def test_no_token_outside_the_nucleus_is_drawn(logits: np.ndarray, seed: int, temperature: float, top_p: float) -> None:
    [token] = sample(logits[:1], [Sampling(temperature=temperature, top_p=top_p, seed=seed)], [0])
    weights = np.exp((logits[0].astype(np.float64) - logits[0].max()) / temperature)
    likelier = weights[weights > weights[token]].sum()
    assert likelier <= top_p * weights.sum() * (1 + 1e-9)


@pytest.mark.parametrize("top_p", [1.0, 0.6])
def test_draws_follow_the_distribution(top_p: float) -> None:
    """Over 5,000 seeds each token's share is within four standard errors of its probability."""
    probabilities = np.array([0.02, 0.4, 0.08, 0.3, 0.2])
    logits = np.log(probabilities, dtype=np.float32)[np.newaxis]
    draws = 5_000
    tokens = [sample(logits, [Sampling(temperature=1.0, top_p=top_p, seed=seed)], [7])[0] for seed in range(draws)]
    kept = probabilities if top_p == 1.0 else np.array([0, 0.4, 0, 0.3, 0])
    expected = kept / kept.sum()
    shares = np.bincount(tokens, minlength=5) / draws
    assert np.all(np.abs(shares - expected) <= 4 * np.sqrt(expected * (1 - expected) / draws))


@given(LOGITS, SEEDS)
def test_a_tiny_temperature_is_greedy(logits: np.ndarray, seed: int) -> None:
    [token] = sample(logits[:1], [Sampling(temperature=1e-300, seed=seed)], [0])
    assert logits[0][token] == logits[0].max()


@pytest.mark.parametrize(("draw", "token"), [(0.0, 1), (0.5, 3), (np.nextafter(1, 0), 3), (1.0, 3)])
def test_tokens_without_weight_are_never_drawn(draw: float, token: int) -> None:
    assert invert(np.array([0.0, 1.0, 0.0, 1.0, 0.0]), draw) == token


@given(SEEDS, st.integers(0, 10_000))
def test_random_numbers_depend_on_seed_and_position(seed: int, position: int) -> None:
    number = uniform(seed, position)
    assert 0 <= number < 1
    assert number == uniform(seed, position)
    assert number != uniform(seed, position + 1)
    assert number != uniform(seed + 1, position)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_logits_that_are_not_finite_are_an_engine_error(bad: float) -> None:
    logits = np.full((2, 4), min(0, bad), np.float32)
    logits[1] = 0 if bad > 0 or np.isnan(bad) else bad
    logits[1, 2] = bad
    with pytest.raises(EngineError, match="not finite"):
        sample(logits, [Sampling()] * 2, [0, 0])
