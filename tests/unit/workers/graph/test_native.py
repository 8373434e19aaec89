"""`model.native` holds the very numbers that it was given, each where the layout says."""

from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

from ops.model.prepare import prepare_model
from shared.errors import ModelError
from shared.model.folder import GRAPH, GRAPH_DATA, NATIVE, TOKENIZER, ModelFolder
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from tests.support.models.fixtures import TINY
from tests.support.models.packed import PackedFile, dequantized, packed_checkpoint, unpacked
from workers.graph.eight_bit.quantize import quantize
from workers.graph.native import NativeFile, packed
from workers.graph.native_layout import begin
from workers.graph.sources.checkpoint import Blocks

SHAPES = st.tuples(st.integers(1, 70), st.integers(1, 5))


@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_eight_bits_are_the_levels_and_scales_of_the_graph(shape: tuple[int, int], seed: int) -> None:
    rows, blocks = shape
    weights = np.random.default_rng(seed).standard_normal((rows, blocks * 32), np.float32)
    levels, scales = quantize(weights)
    data = packed(Blocks(levels, scales)).reshape(-1)
    found = unpacked(data, rows, blocks * 32, four_bits=False)
    assert np.array_equal(found.levels, levels)
    assert np.array_equal(found.scales, scales.astype(np.float16))
    whole = dequantized(unpacked(data, -(-rows // 32) * 32, -(-blocks // 2) * 64, four_bits=False))
    assert not whole[rows:].any(), "padding is no weight"
    assert not whole[:, blocks * 32 :].any()


@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_four_bits_are_kept_as_they_are(shape: tuple[int, int], seed: int) -> None:
    rows, blocks = shape
    draw = np.random.default_rng(seed)
    levels = draw.integers(0, 16, (rows, blocks, 32)).astype(np.uint8)
    scales, minima = draw.standard_normal((2, rows, blocks)).astype(np.float16)
    data = packed(Blocks(levels, scales, minima)).reshape(-1)
    found = unpacked(data, rows, blocks * 32, four_bits=True)
    assert np.array_equal(found.levels, levels)
    assert np.array_equal(found.scales, scales)
    assert found.minima is not None
    assert np.array_equal(found.minima, minima)
    assert not dequantized(unpacked(data, -(-rows // 32) * 32, -(-blocks // 2) * 64, four_bits=True))[rows:].any()


def test_scales_beyond_float16_are_refused() -> None:
    levels, scales = quantize(np.full((32, 64), 1e9, np.float32))
    header, places = begin(TINY, "int8")
    file = NativeFile(BytesIO(header), places, set(places))
    with pytest.raises(ModelError, match=r"'layers.0.self_attn.o_proj' holds weights too large .* --precision fp32"):
        file.matrix("layers.0.self_attn.o_proj", Blocks(levels, scales))


def prepared(directory: Path, family: str) -> ModelFolder:
    config = FAMILY_CONFIGS[family]
    write_family(directory / "source", config, family_tensors(config, 5))
    return prepare_model(directory, "int8", source=directory / "source")


@pytest.mark.parametrize("family", FAMILY_CONFIGS)
def test_it_holds_the_numbers_of_the_graph_beside_it(tmp_path: Path, family: str) -> None:
    """Every matrix but for its scales' rounding to float16, norms and biases to the bit."""
    folder = prepared(tmp_path, family)
    graph = {tensor.name: numpy_helper.to_array(tensor) for tensor in onnx.load(folder.graph_path).graph.initializer}
    file = PackedFile((folder.path / NATIVE).read_bytes(), folder.manifest.architecture)
    checkpoint = packed_checkpoint(file)
    found = {name: checkpoint.read(name) for name in checkpoint.weights}
    for layer in range(checkpoint.architecture.num_layers):
        for ending in ("", ".bias"):
            parts = [found.pop(f"layers.{layer}.self_attn.{part}_proj{ending}", None) for part in "qkv"]
            if parts[0] is not None:
                found[f"layers.{layer}.self_attn.qkv{ending}"] = np.concatenate(parts)
    for name, values in found.items():
        assert np.array_equal(values, graph[name] if values.ndim == 1 else matrix_of(graph, name)), name
    head = "embed_tokens" if checkpoint.architecture.tied_embedding else "lm_head"
    assert np.array_equal(file.vector("away"), graph[f"{head}.away"])
    bias = file.vector("head_bias")
    assert np.array_equal(bias[: found[head].shape[0]], graph[f"{head}.bias"])
    assert not bias[found[head].shape[0] :].any()


def matrix_of(graph: dict[str, np.ndarray], name: str) -> np.ndarray:
    """Return a matrix of the graph. Routers are not rounded; the experts' are one tensor, gate and up in turns."""
    if f"{name}.weight" in graph:
        return graph[f"{name}.weight"]
    stem, is_expert, last = name.partition(".experts.")
    number, _, part = last.partition(".")
    stored = f"{stem}.experts.{part.replace('gate', 'up')}" if is_expert else name
    scales = graph[f"{stored}.scales"]
    levels = graph.get(f"{stored}.levels", graph.get(f"{stored}.rows")).reshape(*scales.shape, 32)
    if is_expert:
        rows = {"gate_proj": slice(0, None, 2), "up_proj": slice(1, None, 2), "down_proj": slice(None)}[part]
        levels, scales = levels[int(number), rows], scales[int(number), rows]
    return dequantized(Blocks(levels, scales.astype(np.float16)))


def test_the_manifest_names_it_and_its_sha256(tmp_path: Path) -> None:
    folder = prepared(tmp_path, "llama")
    assert {entry.name for entry in folder.manifest.files} == {GRAPH, GRAPH_DATA, NATIVE, TOKENIZER}
    path = folder.path / NATIVE
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(data)
    with pytest.raises(ModelError, match="sha256"):
        ModelFolder.open(folder.path, verify=True)
