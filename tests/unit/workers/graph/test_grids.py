"""The two kinds of 8 bits, as ONNX's QuantizeLinear and DequantizeLinear have them."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from workers.graph.eight_bit.quantize import FP8, GRIDS, Grid

each_grid = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
# Of E4M3: seven steps of an eighth in each octave from 2**-6 to 448, and as many below.
FP8_LEVELS = np.array(
    [0, *(m / 512 for m in range(1, 8)), *((1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8))][:-1]
)


@given(arrays(np.float32, 20, elements=st.floats(-600, 600, width=32)))
def test_e4m3_has_the_levels_of_its_definition(multiples: np.ndarray) -> None:
    every = np.concatenate([-FP8_LEVELS, FP8_LEVELS])
    found = FP8.levels(multiples)
    assert np.isin(found, every).all()
    nearest = np.abs(multiples[:, np.newaxis].astype(np.float64) - every).min(axis=1)
    assert np.array_equal(np.abs(multiples.astype(np.float64) - found), nearest)


@each_grid
def test_weights_reach_their_largest_level_on_both_sides(grid: Grid) -> None:
    levels = grid.levels(np.array([-1e6, -grid.largest, grid.largest, 1e6], np.float32))
    assert levels.tolist() == [-grid.largest, -grid.largest, grid.largest, grid.largest]
    assert levels.astype(grid.dtype).astype(np.float32).tolist() == levels.tolist()
