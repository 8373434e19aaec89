"""8-bit products by rows: turning changes no logits, and a row's result is its own."""

import dataclasses
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from family_models import FAMILY_CONFIGS, family_tensors, write_family
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ops.model import prepare_model
from ops.optimize.forward import PlainProducts, predict
from shared.errors import ModelError
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.onnx import OnnxEngine, _products_may_overflow
from workers.graph.builder import GraphBuilder
from workers.graph.matrices import Int8Matrices
from workers.graph.row_int8 import RoundedRows, RowInt8Matrices, hadamard, quantize_rows
from workers.graph.source import open_source
from workers.graph.turned import turned, turning

TEXT = [5, *range(40, 70), 7, 300, 12]


@pytest.mark.parametrize("family", FAMILY_CONFIGS)
def test_a_turned_decoder_computes_the_same(tmp_path: Path, family: str) -> None:
    """Of every family: biases, norms of heads, tied tables and scaled rotations included."""
    config = FAMILY_CONFIGS[family]
    write_family(tmp_path / "source", config, family_tensors(config, 3), shards=1)
    checkpoint = open_source(tmp_path / "source").checkpoint
    expected = predict(checkpoint, [TEXT], PlainProducts())
    found = predict(turned(checkpoint), [TEXT], PlainProducts())
    np.testing.assert_allclose(found.log_probability, expected.log_probability, rtol=0, atol=1e-4)
    assert (found.top == expected.top).all()


@pytest.mark.parametrize("size", [1, 2, 16, 64, 96, 576])
def test_turning_is_orthogonal_and_spreads_any_channel(size: int) -> None:
    """No number of it is far above the mean: one channel becomes as many as there are."""
    matrix = turning(size)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-12)
    assert np.abs(matrix).max() <= np.sqrt(2 / size) + 1e-12


@pytest.mark.parametrize("size", [1, 2, 32, 128])
def test_hadamard_is_orthogonal_and_even(size: int) -> None:
    """Every number is of one size."""
    matrix = hadamard(size)
    np.testing.assert_allclose(matrix @ matrix.T, np.eye(size), atol=1e-6)
    np.testing.assert_allclose(np.abs(matrix), size**-0.5, rtol=1e-6)


@given(arrays(np.float32, st.tuples(st.integers(1, 4), st.integers(1, 40)), elements=st.floats(-8, 8, width=32)))
def test_the_error_of_a_row_is_at_most_half_its_step(matrix: np.ndarray) -> None:
    """And a row of zeros stays one."""
    rows = quantize_rows(matrix)
    assert np.abs(rows.levels.astype(np.int32)).max() <= 127
    error = np.abs(rows.levels * rows.scales[:, np.newaxis] - matrix)
    assert np.all(error <= rows.scales[:, np.newaxis] * 0.5001)
    assert not rows.levels[~matrix.any(1)].any()


def test_weights_that_are_not_finite_are_refused() -> None:
    """Before anything is written."""
    with pytest.raises(ModelError, match="not finite"):
        quantize_rows(np.array([[1.0, np.nan]], np.float32))


@pytest.mark.parametrize(("name", "within"), [("mlp.down_proj", 0.02), ("mlp.gate_proj", 0.02), ("lm_head", 0.04)])
def test_a_product_is_near_that_of_the_numbers_and_zeros_stay_zeros(tmp_path: Path, name: str, within: float) -> None:
    """Rows of any size, one of them of zeros, beside each other."""
    random = np.random.default_rng(5)
    matrix = random.standard_normal((48, 64)).astype(np.float32)
    values = random.standard_normal((4, 64)).astype(np.float32) * np.float32([[1], [1e4], [0], [1e-6]])
    found, expected = product(tmp_path, name, matrix, values), values @ matrix.T
    assert not found[2].any()
    assert np.all(np.abs(found - expected) <= within * np.abs(expected).max(1, keepdims=True))


def test_a_usual_value_is_taken_off_and_what_it_gives_is_added_with_the_bias(tmp_path: Path) -> None:
    """What is left to be rounded is small, and so is what is lost; all but the usual value is as exact as can be."""
    random = np.random.default_rng(6)
    matrix, bias = random.standard_normal((48, 64)).astype(np.float32), random.standard_normal(48).astype(np.float32)
    centre = 100 * random.standard_normal(64).astype(np.float32)
    values = centre + random.standard_normal((4, 64)).astype(np.float32)
    rounded = dataclasses.replace(quantize_rows(matrix), centre=centre)
    found = product(tmp_path, "lm_head", matrix, values, bias=bias, rounded=rounded)
    rest = np.abs((values - centre) @ matrix.T).max()
    assert np.abs(found - (values @ matrix.T + bias)).max() <= 0.04 * rest


def test_what_is_rounded_twice_loses_next_to_nothing_of_its_input(tmp_path: Path) -> None:
    """A matrix of whole numbers is held as it is, so that all that is missed is the input's."""
    random = np.random.default_rng(7)
    matrix = random.integers(-127, 128, (16, 64)).astype(np.float32)
    matrix[:, 0] = 127
    values = random.standard_normal((5, 64)).astype(np.float32)
    once, twice = (
        np.abs(product(tmp_path, name, matrix, values) - values @ matrix.T).max() for name in ("lm_head", "mlp.up_proj")
    )
    assert twice < once / 50


def product(
    folder: Path,
    name: str,
    matrix: np.ndarray,
    values: np.ndarray,
    *,
    bias: np.ndarray | None = None,
    rounded: RoundedRows | None = None,
) -> np.ndarray:
    """By ONNX Runtime."""
    with (folder / "model.data").open("wb") as data:
        graph = GraphBuilder(data, "model.data", opset=21, ir_version=10)
        matrices = RowInt8Matrices(graph, Int8Matrices(graph), {} if rounded is None else {name: rounded})
        output = matrices.linear(name, matrix, bias, "values")
    real = onnx.TensorProto.FLOAT
    interface = [
        onnx.helper.make_tensor_value_info(*one)
        for one in (("values", real, ["rows", matrix.shape[1]]), (output, real, ["rows", len(matrix)]))
    ]
    graph.save(folder / "model.onnx", interface[:1], interface[1:])
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), providers=["CPUExecutionProvider"])
    (found,) = session.run(None, {"values": values})
    return np.asarray(found)


def test_a_row_s_logits_are_the_same_to_the_bit_in_any_company(tiny_source: Path, tmp_path: Path) -> None:
    """Alone or among others that are a thousand times as large, prefilled whole or token by token."""
    folder = prepare_model(tmp_path, "int8-rows", source=tiny_source)
    greedy = Sampling()
    engine = OnnxEngine(folder, num_slots=4, max_length=64, threads=2, spinning=False)
    prompts = [TEXT, TEXT[::-1], [9] * len(TEXT), TEXT[3:]]
    chunks = [PrefillChunk(slot=slot, past=0, token_ids=ids, sampling=greedy) for slot, ids in enumerate(prompts)]
    engine.prefill(chunks)
    together = engine._logits.copy()
    for slot, chunk in enumerate(chunks):
        engine.prefill([PrefillChunk(slot=0, past=0, token_ids=chunk.token_ids, sampling=greedy)])
        assert np.array_equal(engine._logits[0], together[slot])
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=TEXT[:-1], sampling=greedy)])
    engine.decode([DecodeRow(slot=0, past=len(TEXT) - 1, token_id=TEXT[-1], sampling=greedy)])
    np.testing.assert_allclose(engine._logits[0], together[0], rtol=0, atol=0.05)
    engine.close()


def test_a_folder_is_named_by_its_numbers_and_found_again_by_what_it_was_made_of(
    tiny_source: Path, tmp_path: Path
) -> None:
    """Another CPU may round a weight the other way: KV of the two is not shared."""
    folder = prepare_model(tmp_path, "int8-rows", source=tiny_source)
    assert folder.manifest.recipe not in {None, folder.manifest.revision}
    written = (folder.path / "model.onnx").stat().st_mtime_ns
    again = prepare_model(tmp_path, "int8-rows", source=tiny_source)
    assert again.manifest.revision == folder.manifest.revision
    assert (again.path / "model.onnx").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("line", "overflow"),
    [
        ("flags\t\t: fpu avx2 fma", True),
        ("flags\t\t: avx512f avx512_vnni", False),
        ("flags\t\t: avx2 avx_vnni", False),
        ("Features\t: asimd asimddp", False),
    ],
)
def test_only_x86_without_vnni_takes_the_slower_products(tmp_path: Path, line: str, overflow: bool) -> None:
    """By the kernel's own list; where there is none, the safe way."""
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text(f"processor\t: 0\n{line}\n")
    assert _products_may_overflow(cpuinfo) is overflow
    assert _products_may_overflow(tmp_path / "missing")
