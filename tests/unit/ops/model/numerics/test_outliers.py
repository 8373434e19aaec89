"""Channels that stand out of their blocks: which are divided, and that nothing is computed otherwise."""

from collections.abc import Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ops.model.numerics.forward import PlainProducts, predict
from ops.model.numerics.outliers import even, outlier_factors
from tests.support.models.fixtures import TINY
from workers.graph.eight_bit.quantize import quantize
from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight, expected_shapes

ARCHITECTURE = msgspec.structs.replace(TINY, hidden_size=64, intermediate_size=96)
SIZES = arrays(np.float32, st.sampled_from([32, 96]), elements=st.floats(0.0078125, 1000, width=32))
TEXTS = [np.random.default_rng(seed).integers(0, TINY.vocab_size, 12).tolist() for seed in range(4)]


def checkpoint(norms: dict[str, dict[int, float]] | None = None) -> Checkpoint:
    """Random, but for the channels of norms that `norms` names."""
    random = np.random.default_rng(7)
    weights = {}
    for name, shape in expected_shapes(ARCHITECTURE).items():
        noise = random.standard_normal(shape).astype(np.float32)
        values = noise * np.float32(shape[-1] ** -0.5) if len(shape) == 2 else 1 + noise / 10
        for channel, value in (norms or {}).get(name, {}).items():
            values[channel] = value
        weights[name] = Weight(shape, lambda values=values: values)
    return Checkpoint(architecture=ARCHITECTURE, weights=weights)


@given(SIZES)
def test_factors_are_powers_of_two_and_leave_the_usual_alone(sizes: np.ndarray) -> None:
    factors = outlier_factors(sizes)
    assert np.all(factors >= 1)
    assert np.all(np.log2(factors) == np.rint(np.log2(factors)))
    blocks = sizes.reshape(-1, 32)
    usual = np.median(blocks, axis=1, keepdims=True)
    assert np.all(factors.reshape(blocks.shape)[blocks <= 4 * usual] == 1)


@given(SIZES)
def test_nothing_stands_out_afterwards(sizes: np.ndarray) -> None:
    usual = np.median(sizes.reshape(-1, 32), axis=1, keepdims=True)
    left = (sizes / outlier_factors(sizes)).reshape(-1, 32)
    assert np.all(left <= 4 * usual * 2**0.5 * 1.001)


@pytest.mark.parametrize("sizes", [np.ones(40), np.zeros(32), np.full(32, np.nan), np.full(32, np.inf)])
def test_what_cannot_be_told_is_left_alone(sizes: np.ndarray) -> None:
    assert np.all(outlier_factors(sizes.astype(np.float32)) == 1)


def test_an_evened_model_computes_what_it_did() -> None:
    loud = {"layers.0.input_layernorm": {5: 60.0, 40: -30.0}, "layers.1.post_attention_layernorm": {9: 80.0}}
    original = checkpoint(loud)
    evened = even(original, TEXTS)
    assert {"layers.0.self_attn.qkv", "layers.1.mlp.gate_proj"} <= evened.factors.keys()
    before, after = (predict(one, TEXTS, PlainProducts()) for one in (original, evened.checkpoint))
    np.testing.assert_allclose(after.log_probability, before.log_probability, rtol=0, atol=1e-4)


def test_its_products_lose_less_in_eight_bits() -> None:
    original = checkpoint({"layers.0.input_layernorm": {5: 60.0}, "layers.1.post_attention_layernorm": {9: 80.0}})
    wanted = predict(original, TEXTS, PlainProducts()).log_probability
    plain, evened = (
        np.abs(predict(one, TEXTS, BlockProducts()).log_probability - wanted).mean()
        for one in (original, even(original, TEXTS).checkpoint)
    )
    assert evened < plain * 0.8


def test_a_revision_is_of_the_recipe_and_the_factors() -> None:
    quiet, loud = (even(checkpoint(norms), TEXTS) for norms in (None, {"layers.0.input_layernorm": {5: 60.0}}))
    assert loud.named("a") == loud.named("a")
    assert len({quiet.named("a"), loud.named("a"), loud.named("b")}) == 3


class BlockProducts:
    """Both sides in blocks of 8 bits."""

    def multiply(self, name: str, value: Float32Array, matrix: Float32Array) -> Float32Array:
        return rounded(value) @ rounded(matrix).T


def rounded(values: Float32Array) -> Float32Array:
    levels, scales = quantize(values)
    shape: Sequence[int] = values.shape
    return ((levels.astype(np.float32) - 128) * scales[..., np.newaxis]).reshape(shape)
