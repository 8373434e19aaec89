"""8-bit blocks: within half a step of the weight, zeros exact, nothing that is not finite."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shared.errors import ModelError
from workers.graph.eight_bit.quantize import quantize

MATRICES = arrays(
    np.float32, st.tuples(st.integers(1, 4), st.sampled_from([32, 64])), elements=st.floats(-8, 8, width=32)
)


def dequantize(levels: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """As MatMulNBits documents it, with the implied zero point."""
    return ((levels.astype(np.float32) - 128) * scales[..., np.newaxis]).reshape(levels.shape[0], -1)


@given(MATRICES)
def test_the_error_is_at_most_half_a_step(matrix: np.ndarray) -> None:
    levels, scales = quantize(matrix)
    assert levels.dtype == np.uint8
    assert levels.shape == (matrix.shape[0], matrix.shape[1] // 32, 32)
    error = np.abs(dequantize(levels, scales) - matrix).reshape(levels.shape)
    assert np.all(error <= scales[..., np.newaxis] * 0.5001 + np.finfo(np.float32).tiny * 128)


def at_level_127(matrix: np.ndarray) -> np.ndarray:
    """The rest of a matrix when every block's largest weight is at the outermost level."""
    blocks = matrix.reshape(matrix.shape[0], -1, 32)
    scales = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127) + np.finfo(np.float32).tiny
    return (np.rint(blocks / scales) * scales).reshape(matrix.shape)


def lost(matrix: np.ndarray, rounded: np.ndarray) -> np.ndarray:
    """The squared error of each block."""
    return np.square((rounded - matrix).astype(np.float64)).reshape(matrix.shape[0], -1, 32).sum(axis=-1)


@given(MATRICES)
def test_no_block_loses_more_than_with_its_largest_weight_at_the_outermost_level(matrix: np.ndarray) -> None:
    largest = np.square(matrix.astype(np.float64)).reshape(matrix.shape[0], -1, 32).max(axis=-1)
    bound = lost(matrix, at_level_127(matrix)) * 1.01 + largest * 1e-9 + np.finfo(np.float32).tiny
    assert np.all(lost(matrix, dequantize(*quantize(matrix))) <= bound)


def test_weights_of_four_bits_and_a_minimum_lose_a_sixth_of_the_squared_error() -> None:
    """As a GGUF's Q4_1 has them: `step * 0…15 + minimum`, both of a block of 32."""
    draw = np.random.default_rng(5)
    step, levels = draw.uniform(0.5, 2, (64, 8, 1)), draw.integers(0, 16, (64, 8, 32))
    matrix = (step * levels - step * draw.uniform(4, 11, (64, 8, 1))).astype(np.float32).reshape(64, 256)
    plain = lost(matrix, at_level_127(matrix)).sum()
    assert lost(matrix, dequantize(*quantize(matrix))).sum() < plain / 5


def test_weights_of_eight_bits_are_kept_as_they_are() -> None:
    """As a GGUF's Q8_0 has them: `step * -127…127`, the outermost in every block."""
    draw = np.random.default_rng(6)
    levels = draw.integers(-127, 128, (16, 4, 32))
    levels[..., 7] = 127
    step = draw.uniform(0.5, 2, (16, 4, 1)).astype(np.float16).astype(np.float32)
    matrix = (step * levels).astype(np.float32).reshape(16, 128)
    found, scales = quantize(matrix)
    assert np.array_equal(found, levels + 128)
    np.testing.assert_allclose(scales, step[..., 0], rtol=1e-6)


def test_rows_that_are_no_multiple_of_a_block_are_refused() -> None:
    with pytest.raises(ModelError, match="multiple of 32"):
        quantize(np.zeros((2, 33), np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    matrix = np.zeros((1, 32), np.float32)
    matrix[0, 5] = bad
    with pytest.raises(ModelError, match="not finite"):
        quantize(matrix)
