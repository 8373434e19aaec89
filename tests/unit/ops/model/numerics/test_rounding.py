"""8 bits by row, static steps, smoothing: what is lost is bounded, and what is moved changes nothing."""

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ops.model.numerics.fit import Samples, fit, smoothing_factors
from ops.model.numerics.forward import PlainProducts, predict
from ops.model.numerics.rounding import passed_on_by, round_compensated
from shared.errors import ModelError
from tests.support.models.fixtures import TINY
from workers.graph.eight_bit.grids import FP8, INT8, Grid
from workers.graph.eight_bit.quantize import half_scale, quantize_rows
from workers.graph.eight_bit.smooth import smoothed
from workers.graph.sources.checkpoint import Checkpoint, Weight, expected_shapes

MATRICES = arrays(np.float32, st.tuples(st.integers(1, 5), st.integers(1, 40)), elements=st.floats(-500, 500, width=32))
FINFO = np.finfo(np.float16)


@given(MATRICES)
def test_a_rows_error_is_at_most_half_its_step(matrix: np.ndarray) -> None:
    rounded = quantize_rows(matrix, INT8)
    assert rounded.levels.dtype == np.int8
    assert rounded.levels.shape == matrix.shape
    assert np.abs(rounded.levels.astype(int)).max() <= 127
    error = np.abs(rounded.dequantized() - matrix)
    assert np.all(error <= rounded.scales[:, np.newaxis] * 0.5001)


@given(MATRICES)
def test_a_rows_step_is_its_own_and_no_larger_than_it_needs(matrix: np.ndarray) -> None:
    peaks = np.abs(matrix).max(axis=1)
    scales = quantize_rows(matrix, INT8).scales
    assert np.array_equal(scales, scales.astype(np.float16).astype(np.float32))
    assert np.all(scales * 127 >= peaks * np.float32(0.9999))
    assert np.all(scales <= np.maximum(peaks / 127 * (1 + 2 * FINFO.eps), FINFO.tiny))


def test_one_rows_large_weights_cost_another_row_nothing() -> None:
    small = np.linspace(-0.01, 0.01, 64, dtype=np.float32)
    alone = quantize_rows(small[np.newaxis], INT8)
    beside = quantize_rows(np.stack([small, small * 5_000]), INT8)
    assert np.array_equal(alone.levels[0], beside.levels[0])


@given(st.floats(0, 60_000, width=32))
def test_a_step_in_half_precision_is_never_below_what_was_asked(scale: float) -> None:
    step = half_scale(np.array(scale, np.float32))
    assert scale <= step <= max(scale * (1 + 2 * FINFO.eps), FINFO.tiny)


@given(
    arrays(np.float32, 30, elements=st.floats(-1_000, 1_000, width=32)),
    st.floats(0.0078125, 4, width=32),
)
def test_activations_are_rounded_within_reach_and_cut_off_beyond(values: np.ndarray, step: float) -> None:
    rounded = INT8.rounded(values, step)
    within = (values <= 127 * step) & (values >= -128 * step)
    assert np.all(np.abs(rounded - values)[within] <= step * 0.5001)
    assert np.allclose(rounded[~within], np.where(values > 0, 127, -128)[~within] * np.float32(step))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    with pytest.raises(ModelError, match="not finite"):
        quantize_rows(np.array([[1.0, bad]], np.float32), INT8)


@given(st.integers(0, 2**32 - 1), st.floats(0.1, 0.9))
def test_smoothing_leaves_every_product_as_it_was(seed: int, strength: float) -> None:
    random = np.random.default_rng(seed)
    rows = random.standard_normal((6, 12)).astype(np.float32) * random.uniform(0.01, 100, 12).astype(np.float32)
    matrix = random.standard_normal((5, 12)).astype(np.float32)
    factors = smoothing_factors(np.abs(rows).max(axis=0), matrix, strength)
    assert np.all(factors > 0)
    np.testing.assert_allclose((rows / factors) @ (matrix * factors).T, rows @ matrix.T, rtol=1e-4, atol=1e-3)


def test_a_channel_that_is_never_used_is_left_alone() -> None:
    peaks = np.array([0, 4, 8], np.float32)
    factors = smoothing_factors(peaks, np.ones((2, 3), np.float32), 0.5)
    assert factors[0] == 1
    assert factors[2] / factors[1] == pytest.approx(2**0.5)


def random_checkpoint(*, bias: bool) -> Checkpoint:
    architecture = msgspec.structs.replace(TINY, mlp_bias=bias)
    random = np.random.default_rng(11)
    weights = {}
    for name, shape in expected_shapes(architecture).items():
        noise = random.standard_normal(shape).astype(np.float32)
        values = noise * np.float32(shape[-1] ** -0.5) if len(shape) == 2 else 1 + noise / 10
        weights[name] = Weight(shape, lambda values=values: values)
    return Checkpoint(architecture=architecture, weights=weights)


def test_a_smoothed_model_predicts_what_it_did() -> None:
    checkpoint = random_checkpoint(bias=True)
    random = np.random.default_rng(5)
    layers = range(TINY.num_layers)
    hidden = {layer: random.uniform(0.1, 10, TINY.hidden_size).astype(np.float32) for layer in layers}
    intermediate = {layer: random.uniform(0.1, 10, TINY.intermediate_size).astype(np.float32) for layer in layers}
    texts = [random.integers(0, TINY.vocab_size, length).tolist() for length in (2, 17, 9)]
    before = predict(checkpoint, texts, PlainProducts())
    after = predict(smoothed(checkpoint, hidden, intermediate), texts, PlainProducts())
    np.testing.assert_allclose(after.log_probability, before.log_probability, rtol=0, atol=1e-4)


def test_fitting_takes_outlying_channels_into_the_matrix() -> None:
    """Two channels a hundred times the others: without smoothing the rest would be rounded away."""
    random = np.random.default_rng(3)
    rows = random.standard_normal((400, 64)).astype(np.float32)
    rows[:, :2] *= 100
    matrix = random.standard_normal((32, 64)).astype(np.float32)
    matrix[:, :2] /= 100
    fitted = fit(Samples(rows, np.abs(rows).max(axis=0), rows.T @ rows), [matrix[:16], matrix[16:]], INT8)
    plain = INT8.rounded(rows, float(np.abs(rows).max() / 127)) @ matrix.T
    error = np.linalg.norm(plain - rows @ matrix.T) / np.linalg.norm(rows @ matrix.T)
    assert fitted.strength > 0
    assert fitted.error < 0.03 < error


def test_fitting_cuts_off_a_value_that_occurs_once() -> None:
    random = np.random.default_rng(4)
    rows = random.standard_normal((400, 64)).astype(np.float32)
    rows[7] *= 300
    peaks = np.full(64, np.abs(rows).max(), np.float32)
    fitted = fit(Samples(rows, peaks, rows.T @ rows), [np.eye(64, dtype=np.float32)], INT8)
    assert fitted.clip < 0.5
    assert 0 < fitted.saturation < 0.01


@pytest.mark.parametrize("size", [1, 63, 65, 200])
def test_what_is_passed_on_is_the_inverse_s_upper_factor(size: int) -> None:
    """Of sizes that are inverted whole and by halves."""
    random = np.random.default_rng(size)
    inputs = random.standard_normal((3 * size, size)).astype(np.float32)
    gram = inputs.T @ inputs / len(inputs)
    found = passed_on_by(gram, 0.1)
    damped = gram + 0.1 * np.mean(np.diag(gram)) * np.eye(size)
    assert not np.tril(found, -1).any()
    np.testing.assert_allclose(found.T @ found @ damped, np.eye(size), atol=1e-4)


def test_inputs_that_have_nothing_in_common_are_rounded_to_the_nearest() -> None:
    matrix = np.random.default_rng(6).standard_normal((8, 200)).astype(np.float32)
    rounded = round_compensated(matrix, np.eye(200, dtype=np.float32), INT8, damping=0.01)
    nearest = quantize_rows(matrix, INT8)
    assert np.array_equal(rounded.levels, nearest.levels)
    assert np.array_equal(rounded.scales, nearest.scales)


@pytest.mark.parametrize("grid", [INT8, FP8], ids=lambda grid: grid.name)
def test_what_a_column_loses_is_made_up_for_by_those_that_go_with_it(grid: Grid) -> None:
    random = np.random.default_rng(7)
    rows = (random.standard_normal((600, 12)) @ random.standard_normal((12, 200))).astype(np.float32)
    rows += random.standard_normal(rows.shape).astype(np.float32) / 10
    matrix = random.standard_normal((8, 200)).astype(np.float32)

    def error(rounded: np.ndarray) -> float:
        return float(np.linalg.norm(rows @ (rounded - matrix).T))

    compensated = round_compensated(matrix, rows.T @ rows / 600, grid, damping=0.01)
    assert compensated.levels.dtype == grid.dtype
    assert np.abs(compensated.levels.astype(np.float32)).max() <= grid.largest
    assert error(compensated.dequantized()) < 0.5 * error(quantize_rows(matrix, grid).dequantized())


def test_dividing_rows_divides_the_scales_alone() -> None:
    matrix = np.random.default_rng(8).standard_normal((8, 20)).astype(np.float32)
    rows = np.linspace(0.1, 9, 8, dtype=np.float32)
    rounded = quantize_rows(matrix, INT8)
    np.testing.assert_allclose(rounded.divided(rows).dequantized() * rows[:, None], rounded.dequantized(), rtol=2e-3)
