"""8 bits a row, fitted to what a matrix multiplies: nothing is computed otherwise, and less is lost."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ops.model.numerics.rows import Inputs, fitted, fitted_rows, worst
from shared.errors import ModelError
from tests.support.models.fixtures import TINY
from workers.graph.eight_bit.row_int8 import RoundedRows, is_rounded_twice, quantize_rows
from workers.graph.sources.checkpoint import Checkpoint, Float32Array, Weight, expected_shapes

TEXTS = [np.random.default_rng(seed).integers(0, TINY.vocab_size, 24).tolist() for seed in range(4)]


def checkpoint(**changed: Float32Array) -> Checkpoint:
    random = np.random.default_rng(7)
    weights = {}
    for name, shape in expected_shapes(TINY).items():
        noise = random.standard_normal(shape).astype(np.float32)
        values = noise * np.float32(shape[-1] ** -0.5) if len(shape) == 2 else 1 + noise / 10
        values = changed.get(name.replace(".", "_"), values)
        weights[name] = Weight(shape, lambda values=values: values)
    return Checkpoint(architecture=TINY, weights=weights)


def test_every_matrix_is_fitted_and_has_a_centre_where_its_input_is_rounded_once() -> None:
    """The head's own included."""
    rounded = fitted_rows(checkpoint(), TEXTS)
    parts = ("self_attn.qkv", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj")
    layers = {f"layers.{layer}.{part}" for layer in range(TINY.num_layers) for part in parts}
    assert rounded.keys() == {"lm_head", *layers}
    for name, rows in rounded.items():
        assert (rows.centre is None) is is_rounded_twice(name)


def test_the_noisiest_for_their_size_are_held_finer_within_the_budget() -> None:
    """One that is too large for what is left makes room for a smaller one."""
    noise = {"a": 7.0, "b": 30.0, "c": 1.0, "d": 4.0}
    sizes = {"a": 2, "b": 10, "c": 1, "d": 1}
    assert worst(noise, sizes, 14) == ["d", "a", "b", "c"]
    assert worst(noise, sizes, 4) == ["d", "a", "c"]
    assert worst(noise, sizes, 0) == []


def test_what_is_held_finer_adds_to_the_stream_and_is_one_in_ten_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A layer's last products alone, the one with the most noise before it was held so."""
    monkeypatch.setattr("ops.model.numerics.rows._FINER", 5)
    plain = checkpoint()
    loud = plain.read("layers.1.mlp.down_proj").copy()
    # One weight of each row takes the levels from all others.
    loud[:, 0] += 40 * np.abs(loud).max()
    rounded = fitted_rows(checkpoint(layers_1_mlp_down_proj=loud), TEXTS)
    finer = {name for name, rows in rounded.items() if rows.fine_levels is not None}
    layers = sum(rows.levels.size for name, rows in rounded.items() if name != "lm_head")
    assert "layers.1.mlp.down_proj" in finer
    assert all(name.endswith(("o_proj", "down_proj")) for name in finer)
    assert sum(rounded[name].levels.size for name in finer) <= layers / 5


@settings(max_examples=20)
@given(st.integers(0, 1_000))
def test_less_of_a_product_is_lost_than_to_the_nearest(seed: int) -> None:
    """Of inputs that have a usual value and lie mostly in a few directions."""
    random = np.random.default_rng(seed)
    matrix = random.standard_normal((24, 64)).astype(np.float32)
    inputs = random.standard_normal((400, 8)) @ random.standard_normal((8, 64)) + 3 * random.standard_normal(64)
    values = inputs.astype(np.float32)
    found = fitted(matrix, Inputs.of(values, np.full(400, 1 / 400, np.float32), centred=True))
    assert np.abs(found.levels.astype(int)).max() <= 127
    assert missed(found, matrix, values) < 0.7 * missed(quantize_rows(matrix), matrix, values)


def missed(rows: RoundedRows, matrix: Float32Array, values: Float32Array) -> float:
    """The quadratic mean of the error of a product, what is multiplied being rounded as well."""
    centre = np.zeros(matrix.shape[1], np.float32) if rows.centre is None else rows.centre
    left = values - centre
    steps = np.abs(left).max(axis=1, keepdims=True) / 127
    weights = rows.levels * rows.scales[:, np.newaxis]
    product = (np.rint(left / steps) * steps) @ weights.T + matrix @ centre
    return float(np.sqrt(np.mean(np.square(product - values @ matrix.T))))


def test_an_input_that_is_always_zero_leaves_the_nearest() -> None:
    """Nothing is known by which errors could be passed on."""
    matrix = np.random.default_rng(3).standard_normal((8, 32)).astype(np.float32)
    found = fitted(matrix, Inputs.of(np.zeros((10, 32), np.float32), np.full(10, 0.1, np.float32), centred=True))
    plain = quantize_rows(matrix)
    assert np.array_equal(found.levels, plain.levels)
    assert np.array_equal(found.scales, plain.scales)
    assert found.centre is None


def test_weights_that_are_not_finite_are_refused() -> None:
    """In one line, wherever they are met first."""
    broken = np.full((TINY.intermediate_size, TINY.hidden_size), np.nan, np.float32)
    with pytest.raises(ModelError, match="not finite"):
        fitted_rows(checkpoint(layers_0_mlp_up_proj=broken), TEXTS)
