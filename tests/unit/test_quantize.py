"""8-bit blocks: within half a step of the weight, zeros exact, nothing that is not finite."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from shared.errors import ModelError
from workers.graph.quantize import quantize

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


def test_zeros_stay_zeros() -> None:
    levels, scales = quantize(np.zeros((2, 32), np.float32))
    assert np.all(levels == 128)
    assert np.all(dequantize(levels, scales) == 0)


def test_rows_that_are_no_multiple_of_a_block_are_refused() -> None:
    with pytest.raises(ModelError, match="multiple of 32"):
        quantize(np.zeros((2, 33), np.float32))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(bad: float) -> None:
    matrix = np.zeros((1, 32), np.float32)
    matrix[0, 5] = bad
    with pytest.raises(ModelError, match="not finite"):
        quantize(matrix)
