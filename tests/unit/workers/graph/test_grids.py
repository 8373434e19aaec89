"""The two kinds of 8 bits, as ONNX's QuantizeLinear and DequantizeLinear have them."""

import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from onnx import helper, numpy_helper

from workers.graph.eight_bit.grids import FP8, GRIDS, Grid

each_grid = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
# Of E4M3: seven steps of an eighth in each octave from 2**-6 to 448, and as many below.
FP8_LEVELS = np.array(
    [0, *(m / 512 for m in range(1, 8)), *((1 + m / 8) * 2.0**e for e in range(-6, 9) for m in range(8))][:-1]
)


def by_onnx(grid: Grid, values: np.ndarray, step: float) -> np.ndarray:
    """By ONNX Runtime's kernels."""
    constants = [
        numpy_helper.from_array(np.array(step, np.float32), "step"),
        numpy_helper.from_array(np.zeros((), grid.dtype), "zero"),
    ]
    nodes = [
        helper.make_node("QuantizeLinear", ["values", "step", "zero"], ["levels"]),
        helper.make_node("DequantizeLinear", ["levels", "step", "zero"], ["rounded"]),
    ]
    tensors = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [None]) for name in ("values", "rounded")]
    graph = helper.make_graph(nodes, "rounding", tensors[:1], tensors[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    [rounded] = session.run(None, {"values": values})
    return np.asarray(rounded)


@each_grid
@pytest.mark.parametrize("step", [1.0, 0.0078125, 0.013])
def test_activations_are_rounded_as_onnx_rounds_them(grid: Grid, step: float) -> None:
    """To the last bit: between levels, at the middle of two, beyond the outermost."""
    random = np.random.default_rng(1)
    sizes = (2.0 ** random.uniform(-14, 11, 20_000)).astype(np.float32)
    middles = (FP8_LEVELS[1:] + FP8_LEVELS[:-1]) / 2 if grid is FP8 else np.arange(-140, 140) + 0.5
    values = np.concatenate([sizes, -sizes, middles, -middles, [0.0]]).astype(np.float32) * np.float32(step)
    assert np.array_equal(grid.rounded(values, step), by_onnx(grid, values, step))


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
