"""8-bit products by rows: turning changes no logits, and a row's result is its own."""

import dataclasses
from pathlib import Path

import msgspec
import numpy as np
import onnx
import onnxruntime
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ops.model.numerics.forward import PlainProducts, predict
from ops.model.prepare import prepare_model
from shared.errors import ModelError
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from tests.support.models.fixtures import TINY
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.onnx import OnnxEngine, _products_may_overflow
from workers.graph.eight_bit.builder import GraphBuilder
from workers.graph.eight_bit.matrices import Int8Matrices
from workers.graph.eight_bit.row_int8 import (
    RoundedRows,
    RowInt8Matrices,
    hadamard,
    quantize_rows,
    quantize_rows_twice,
    spread,
)
from workers.graph.eight_bit.straight_tables import StraightTables
from workers.graph.eight_bit.turned import turned, turning
from workers.graph.sources.checkpoint import Checkpoint, Weight, expected_shapes
from workers.graph.sources.opening import open_source

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
def test_a_product_is_near_that_of_the_numbers_and_zeros_stay_zeros(
    tmp_path: Path, tiny_source: Path, name: str, within: float
) -> None:
    """Rows of any size, one of them of zeros, beside each other."""
    random = np.random.default_rng(5)
    matrix = random.standard_normal((48, 64)).astype(np.float32)
    values = random.standard_normal((4, 64)).astype(np.float32) * np.float32([[1], [1e4], [0], [1e-6]])
    found, expected = product(tmp_path, tiny_source, name, matrix, values), values @ matrix.T
    assert not found[2].any()
    assert np.all(np.abs(found - expected) <= within * np.abs(expected).max(1, keepdims=True))


def test_a_usual_value_is_taken_off_and_what_it_gives_is_added_with_the_bias(tmp_path: Path, tiny_source: Path) -> None:
    """What is left to be rounded is small, and so is what is lost; all but the usual value is as exact as can be."""
    random = np.random.default_rng(6)
    matrix, bias = random.standard_normal((48, 64)).astype(np.float32), random.standard_normal(48).astype(np.float32)
    centre = 100 * random.standard_normal(64).astype(np.float32)
    values = centre + random.standard_normal((4, 64)).astype(np.float32)
    rounded = dataclasses.replace(quantize_rows(matrix), centre=centre)
    found = product(tmp_path, tiny_source, "lm_head", matrix, values, bias=bias, rounded=rounded)
    rest = np.abs((values - centre) @ matrix.T).max()
    assert np.abs(found - (values @ matrix.T + bias)).max() <= 0.04 * rest


def test_what_is_rounded_twice_loses_next_to_nothing_of_its_input(tmp_path: Path, tiny_source: Path) -> None:
    """A matrix of whole numbers is held as it is, so that all that is missed is the input's."""
    random = np.random.default_rng(7)
    matrix = random.integers(-127, 128, (16, 64)).astype(np.float32)
    matrix[:, 0] = 127
    values = random.standard_normal((5, 64)).astype(np.float32)
    once, twice = (
        np.abs(product(tmp_path, tiny_source, name, matrix, values) - values @ matrix.T).max()
        for name in ("lm_head", "mlp.up_proj")
    )
    assert twice < once / 50


def test_a_matrix_rounded_twice_is_held_254_times_as_well(tmp_path: Path, tiny_source: Path) -> None:
    """As levels, and in the product of an input that is rounded twice too."""
    random = np.random.default_rng(8)
    matrix = random.standard_normal((48, 64)).astype(np.float32)
    values = random.standard_normal((5, 64)).astype(np.float32)
    rows = quantize_rows_twice(matrix)
    assert rows.fine_levels is not None
    held = (rows.levels + rows.fine_levels / 254.0) * rows.scales[:, np.newaxis]
    assert np.all(np.abs(held - matrix) <= rows.scales[:, np.newaxis] * 0.501 / 254)
    once, twice = (
        np.abs(product(tmp_path, tiny_source, "mlp.down_proj", matrix, values, rounded=rounded) - values @ plain.T)
        for rounded, plain in ((quantize_rows(spread(matrix)), matrix), (quantize_rows_twice(spread(matrix)), matrix))
    )
    assert twice.max() < once.max() / 30


def product(
    folder: Path,
    source: Path,
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
        tables = StraightTables(graph, Int8Matrices(graph), open_source(source).checkpoint)
        matrices = RowInt8Matrices(graph, tables, {} if rounded is None else {name: rounded})
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


@pytest.mark.parametrize("tied", [True, False])
def test_the_largest_logits_are_computed_again_of_the_straight_rows(tmp_path: Path, tied: bool) -> None:
    """Eight of them, and nothing of the others, by tables of one function whichever way they are turned."""
    vocabulary, hidden = 40, 64
    random = np.random.default_rng(9)
    architecture = msgspec.structs.replace(TINY, vocab_size=vocabulary, tied_embedding=tied)
    drawn = {
        name: random.standard_normal(shape).astype(np.float32) for name, shape in expected_shapes(architecture).items()
    }
    weights = {name: Weight(values.shape, lambda values=values: values) for name, values in drawn.items()}
    checkpoint = Checkpoint(architecture=architecture, weights=weights)
    with (tmp_path / "model.data").open("wb") as data:
        graph = GraphBuilder(data, "model.data", opset=21, ir_version=10)
        tables = StraightTables(graph, Int8Matrices(graph), checkpoint)
        tables.store_embedding("embed_tokens")
        tables.store_head("lm_head")
        tables.look_up("embed_tokens", "ids", "embedded")
        tables.correct("rounded", "normed", "logits")
    tensor, real = onnx.helper.make_tensor_value_info, onnx.TensorProto.FLOAT
    inputs = [
        tensor("ids", onnx.TensorProto.INT64, ["rows", 1]),
        tensor("rounded", real, ["rows", vocabulary]),
        tensor("normed", real, ["rows", hidden]),
    ]
    graph.save(
        tmp_path / "model.onnx",
        inputs,
        [tensor("embedded", real, ["rows", 1, hidden]), tensor("logits", real, ["rows", vocabulary])],
    )
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), providers=["CPUExecutionProvider"])
    straight = random.standard_normal((3, hidden)).astype(np.float32)
    turn = turning(hidden).astype(np.float32)
    head = drawn["embed_tokens"] if tied else drawn["lm_head"]
    exact = (straight * drawn["norm"]) @ head.T
    rounded = exact + np.float32(0.5)
    ids = np.array([[3], [0], [39]])
    embedded, logits = session.run(None, {"ids": ids, "rounded": rounded, "normed": straight @ turn})
    np.testing.assert_allclose(embedded[:, 0], drawn["embed_tokens"][ids[:, 0]] @ turn, atol=0.05)
    largest = np.zeros_like(exact, bool)
    np.put_along_axis(largest, np.argsort(exact, axis=1)[:, -8:], True, axis=1)
    np.testing.assert_allclose(logits[largest], exact[largest], atol=0.3)
    assert np.abs(logits[largest] - exact[largest]).mean() < 0.1
    assert np.array_equal(logits[~largest], rounded[~largest])


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
