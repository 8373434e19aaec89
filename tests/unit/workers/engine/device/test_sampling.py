"""A token sampled from part of a row equals that of the whole row; if that is uncertain, none is returned."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.engine import Sampling
from workers.engine.device.sampling import (
    BLOCK_TOKENS,
    draw_from_block,
    draw_from_candidates,
    find_block,
    from_a_nucleus,
)
from workers.engine.sampling import sample

VOCABULARY = 2_000  # its last block is not whole
CANDIDATES = 64

seeds, positions = st.integers(0, 2**63 - 1), st.integers(0, 4_000)
temperatures = st.floats(0.05, 2.0)
drawn_from_all = st.builds(Sampling, temperature=temperatures, seed=seeds)
samplings = st.builds(Sampling, temperature=temperatures, top_p=st.floats(0.05, 0.999), seed=seeds)


def row(seed: int, *, spread: float, coarse: bool) -> np.ndarray:
    logits = np.random.default_rng(seed).standard_normal(VOCABULARY).astype(np.float32) * np.float32(spread)
    # As float16 products round them: many are equal.
    return logits.astype(np.float16).astype(np.float32) if coarse else logits


def block_mass(logits: np.ndarray, temperature: float) -> np.ndarray:
    """In float32, as the device sums."""
    weights = np.exp((logits - logits.max()) / np.float32(temperature))
    return np.array(
        [part.sum(dtype=np.float32) for part in np.split(weights, range(BLOCK_TOKENS, VOCABULARY, BLOCK_TOKENS))]
    )


def from_candidates(logits: np.ndarray, sampling: Sampling, position: int, seed: int = 0) -> int | None:
    """The candidates in an order of the device's own, of equal logits any."""
    shuffled = np.random.default_rng(seed).permutation(VOCABULARY)
    best = shuffled[np.argsort(-logits[shuffled], kind="stable")[:CANDIDATES]].astype(np.int64)
    mass = block_mass(logits, sampling.temperature)
    return draw_from_candidates(logits[best], best, mass, sampling, position)


def from_block(logits: np.ndarray, sampling: Sampling, position: int) -> int | None:
    mass = block_mass(logits, sampling.temperature)
    block = find_block(mass, sampling, position)
    if block is None:
        return None
    part = logits[block * BLOCK_TOKENS :][:BLOCK_TOKENS]
    return draw_from_block(part, mass, sampling, position, block=block, peak=float(logits.max()))


@given(st.integers(0, 500), st.floats(0.5, 8.0), st.booleans(), samplings, positions)
def test_a_token_from_the_candidates_is_that_of_the_whole_row(
    seed: int, spread: float, coarse: bool, sampling: Sampling, position: int
) -> None:
    logits = row(seed, spread=spread, coarse=coarse)
    token = from_candidates(logits, sampling, position, seed)
    assert token in {None, *sample(logits[np.newaxis], [sampling], [position])}


@given(st.integers(0, 500), st.floats(0.5, 8.0), st.booleans(), drawn_from_all, positions)
def test_a_token_from_a_block_is_that_of_the_whole_row(
    seed: int, spread: float, coarse: bool, sampling: Sampling, position: int
) -> None:
    logits = row(seed, spread=spread, coarse=coarse)
    token = from_block(logits, sampling, position)
    assert token in {None, *sample(logits[np.newaxis], [sampling], [position])}


@pytest.mark.parametrize("top_p", [0.5, 0.9, 1.0])
def test_most_rows_are_settled(top_p: float) -> None:
    """Otherwise the whole row would be copied each time, without a gain."""
    sampling = Sampling(temperature=0.7, top_p=top_p, seed=5)
    draw = from_candidates if from_a_nucleus(sampling) else from_block
    settled = [draw(row(seed, spread=4.0, coarse=True), sampling, seed) for seed in range(200)]
    assert sum(token is not None for token in settled) >= 190


def test_a_mass_on_the_nucleus_edge_settles_nothing() -> None:
    """Two tokens of half the mass each, and top_p of half: rounding of the mass decides how many are in."""
    logits, ids, mass = np.array([0.0, 0.0, -50.0], np.float32), np.array([7, 3, 1], np.int64), np.array([1.0, 1.0])
    assert draw_from_candidates(logits, ids, mass, Sampling(temperature=1.0, top_p=0.5, seed=1), 0) is None
    assert draw_from_candidates(logits, ids, mass, Sampling(temperature=1.0, top_p=0.4, seed=1), 0) == 3


def test_a_draw_on_an_edge_settles_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two blocks, and between two tokens of one: rounding of the sums decides."""
    logits = np.zeros(VOCABULARY, np.float32)
    sampling = Sampling(temperature=1.0, seed=1)
    for draw, token in ((BLOCK_TOKENS / VOCABULARY, None), (5 / VOCABULARY, None), (5.5 / VOCABULARY, 5)):
        monkeypatch.setattr("workers.engine.device.sampling.uniform", lambda _seed, _position, draw=draw: draw)
        assert from_block(logits, sampling, 0) == token


def test_the_tokens_behind_the_last_whole_block_are_drawn_too(monkeypatch: pytest.MonkeyPatch) -> None:
    logits = np.full(VOCABULARY, -60.0, np.float32)
    logits[-1] = 0.0
    monkeypatch.setattr("workers.engine.device.sampling.uniform", lambda _seed, _position: 0.5)
    assert from_block(logits, Sampling(temperature=1.0, seed=1), 0) == VOCABULARY - 1
