"""An 8-bit MLP in TensorRT's dialects: ONNX Runtime's CPU kernels compute the same as numpy."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from ops.model.numerics.forward import PlainProducts, RoundedProducts, predict
from tests.support.models.families import DENSE_CONFIGS
from tests.support.models.rounded import TEXT, checkpoint_of, rounded_of
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.eight_bit.quantize import FP8, GRIDS, INT8, Grid
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.tensorrt import write_tensorrt_decoder

MAX_LENGTH = 64
# A value at the edge between two levels may be rounded either way: one of many then differs by a whole level.
BESIDE_AN_EDGE = 0.1
STORED = {"int8": onnx.TensorProto.INT8, "fp8": onnx.TensorProto.FLOAT8E4M3FN}
each_grid = pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)


def write(checkpoint: Checkpoint, folder: Path, dtype: str, rounded: dict[str, RoundedLinear]) -> Path:
    folder.mkdir(exist_ok=True)
    write_tensorrt_decoder(
        checkpoint, folder, max_length=MAX_LENGTH, dtype=np.dtype(dtype), rounded=rounded, progress=lambda _: None
    )
    return folder / "model.onnx"


def log_probabilities(graph: Path, checkpoint: Checkpoint, dtype: str) -> np.ndarray:
    """Return the log probability of each token of `TEXT` but the first, given those before it: one row of the batch for
    each prefix.
    """
    a = checkpoint.architecture
    lengths = np.arange(1, len(TEXT))
    given: dict[str, np.ndarray] = {
        "input_ids": np.array([[*TEXT[:length], *[0] * (len(TEXT) - 1 - length)] for length in lengths], np.int64),
        "last_index": (lengths - 1)[:, np.newaxis],
        "past_lengths": np.zeros(len(lengths), np.int64),
    }
    slots = np.zeros((len(lengths), a.num_kv_heads, MAX_LENGTH, a.head_dim), dtype)
    given |= {f"past_{part}.{layer}": slots for layer in range(a.num_layers) for part in ("key", "value")}
    options = onnxruntime.SessionOptions()
    # When optimised, a product of 8-bit weights alone becomes MatMulNBits, which rounds the activations too.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(graph), options, providers=["CPUExecutionProvider"])
    logits = session.run(["logits"], given)[0].astype(np.float64)
    normal = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    return normal[np.arange(len(lengths)), TEXT[1:]]


@pytest.mark.parametrize(
    ("name", "grid"),
    [*((name, INT8) for name in DENSE_CONFIGS), *((name, FP8) for name in ("llama", "qwen2, tied", "qwen3, biases"))],
    ids=lambda value: getattr(value, "name", value),
)
def test_every_family_equals_numpy(tmp_path: Path, name: str, grid: Grid) -> None:
    """In 8 bits; and without rounding, the original model."""
    checkpoint = checkpoint_of(tmp_path / "source", name)
    every = rounded_of(checkpoint, grid)
    plain = predict(checkpoint, [TEXT], PlainProducts()).log_probability
    rounded = predict(checkpoint, [TEXT], RoundedProducts(every)).log_probability
    assert 0 < np.abs(rounded - plain).max() < 0.6
    for linears, expected, most in (({}, plain, 1e-4), (every, rounded, BESIDE_AN_EDGE)):
        graph = write(checkpoint, tmp_path / f"{len(linears)}", "float32", linears)
        difference = np.abs(log_probabilities(graph, checkpoint, "float32") - expected)
        assert np.median(difference) < 1e-4
        assert difference.max() < most


@each_grid
@pytest.mark.parametrize("name", ["llama, linear scaling, every bias", "qwen3, tied"])
def test_half_precision_rounds_a_little_more(tmp_path: Path, name: str, grid: Grid) -> None:
    checkpoint = checkpoint_of(tmp_path / "source", name)
    every = rounded_of(checkpoint, grid, weights_alone="layers.0.mlp.down_proj", fp16="layers.1.mlp.up_proj")
    expected = predict(checkpoint, [TEXT], RoundedProducts(every)).log_probability
    graph = write(checkpoint, tmp_path / "graph", "float16", every)
    difference = np.abs(log_probabilities(graph, checkpoint, "float16") - expected)
    assert np.median(difference) < 0.03
    assert difference.max() < 0.3


@each_grid
def test_excluded_layers_are_not_quantised_and_all_others_are_8_bits(tmp_path: Path, grid: Grid) -> None:
    checkpoint = checkpoint_of(tmp_path / "source", "llama, linear scaling, every bias")
    down, up = "layers.0.mlp.down_proj", "layers.1.mlp.up_proj"
    every = rounded_of(checkpoint, grid, fp16=down, weights_alone=up)
    graph = write(checkpoint, tmp_path / "graph", "float16", every)
    onnx.checker.check_model(graph, full_check=True)
    model = onnx.load(graph, load_external_data=False)
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    matrices = {f"layers.{layer}.mlp.{part}_proj" for layer in (0, 1) for part in ("gate", "up", "down")}
    assert {name for name in matrices if stored.get(f"{name}.levels") == STORED[grid.name]} == matrices - {down}
    others = [down, "layers.0.self_attn.qkv", "layers.1.self_attn.o_proj", "embed_tokens", "lm_head"]
    assert all(stored[f"{name}.weight"] == onnx.TensorProto.FLOAT16 for name in others)
    # Gate and up of layer 0 share the same rounded activations; up of layer 1 uses those that gate rounds for itself.
    read = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "MatMul"}
    norm = "layers.1.post_attention_layernorm.out.narrow"
    assert read["layers.0.mlp.gate_proj.out"] == read["layers.0.mlp.up_proj.out"] == "layers.0.mlp.gate_proj.in"
    assert (read["layers.1.mlp.gate_proj.out"], read[f"{up}.out"]) == ("layers.1.mlp.gate_proj.in", norm)
    operators = Counter(node.op_type for node in model.graph.node)
    assert (operators["QuantizeLinear"], operators["DequantizeLinear"]) == (3, 3 + 5)
