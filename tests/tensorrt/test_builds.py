"""TensorRT for RTX parses and builds every family's graph, on a machine without a GPU.

Its parser and builder are TensorRT's; engines of it run on a GPU only, so no number is checked here.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorrt_rtx_bindings as trt

from ops.model.prepare import prepare_model
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, write_family
from workers.graph.eight_bit.qdq import RoundedLinear
from workers.graph.eight_bit.quantize import GRIDS, Grid, quantize_rows
from workers.graph.sources.safetensors import SafetensorsSource
from workers.graph.tensorrt import write_tensorrt_decoder

MAX_LENGTH = 128
NUM_SLOTS = 8
# Prefill of up to 64 tokens a row, and decode.
TOKENS = (64, 1)
CASES = [*((name, 64) for name in FAMILY_CONFIGS), ("qwen3, tied", 128), ("llama", 16)]


def shape_of(tensor: Any, rows: int, tokens: int) -> list[int]:
    """The input's shape with B and T given: B is the first axis of all, T the second of `input_ids` alone."""
    rest = list(tensor.shape)[1:]
    return [rows, tokens] if tensor.name == "input_ids" else [rows, *rest]


def built(folder: Path) -> tuple[Counter[Any], int]:
    """The kinds of layers that the graph in `folder` is parsed to, and the bytes of its plan for both profiles."""
    logger = trt.Logger(trt.Logger.ERROR)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    parsed = parser.parse_from_file(str(folder / "model.onnx"))
    assert parsed, [parser.get_error(at).desc() for at in range(parser.num_errors)]
    settings = builder.create_builder_config()
    for tokens in TOKENS:
        profile = builder.create_optimization_profile()
        for at in range(network.num_inputs):
            tensor = network.get_input(at)
            shapes = [shape_of(tensor, 1, 1), *[shape_of(tensor, NUM_SLOTS, tokens)] * 2]
            profile.set_shape(tensor.name, *shapes)
        settings.add_optimization_profile(profile)
    layers = Counter(network.get_layer(at).type for at in range(network.num_layers))
    plan = builder.build_serialized_network(network, settings)
    assert plan is not None
    return layers, plan.nbytes


@pytest.mark.parametrize(("name", "head_dim"), CASES, ids=[f"{name}-{dim}" for name, dim in CASES])
def test_every_family_builds_with_its_kv_in_place(tmp_path: Path, name: str, head_dim: int) -> None:
    config = {**FAMILY_CONFIGS[name], "head_dim": head_dim}
    write_family(tmp_path / "source", config, family_tensors(config, 1))
    checkpoint = SafetensorsSource.open(tmp_path / "source").checkpoint()
    write_tensorrt_decoder(checkpoint, tmp_path, max_length=MAX_LENGTH, progress=lambda _fraction: None)

    layers, _ = built(tmp_path)
    # Every cache update is TensorRT's own, and every attention one fused layer.
    num_layers = checkpoint.architecture.num_layers
    assert layers[trt.LayerType.KV_CACHE_UPDATE] == layers[trt.LayerType.ROTARY_EMBEDDING] == 2 * num_layers
    assert layers[trt.LayerType.ATTENTION_INPUT] == num_layers


def test_a_folder_of_bf16_builds_with_its_kv_in_place(tmp_path: Path) -> None:
    config = FAMILY_CONFIGS["qwen3, biases"]
    write_family(tmp_path / "source", config, family_tensors(config, 1))
    folder = prepare_model(tmp_path, "bf16", source=tmp_path / "source", max_length=MAX_LENGTH)
    num_layers = folder.manifest.architecture.num_layers
    layers, _ = built(folder.path)
    assert layers[trt.LayerType.KV_CACHE_UPDATE] == 2 * num_layers
    assert layers[trt.LayerType.ATTENTION_INPUT] == num_layers


@pytest.mark.parametrize("grid", GRIDS.values(), ids=GRIDS)
def test_an_mlp_of_8_bits_is_built_of_bytes(tmp_path: Path, grid: Grid) -> None:
    """The matrices are still bytes in what is built, whether their activations are rounded or not."""
    shape = {"hidden_size": 256, "intermediate_size": 2_048, "head_dim": 64, "num_hidden_layers": 1}
    config = {**FAMILY_CONFIGS["llama"], **shape}
    write_family(tmp_path / "source", config, family_tensors(config, 1))
    checkpoint = SafetensorsSource.open(tmp_path / "source").checkpoint()
    names = [f"layers.0.mlp.{part}_proj" for part in ("gate", "up", "down")]
    matrices = {name: quantize_rows(checkpoint.read(name), grid) for name in names}
    sizes = []
    # Gate and up share their rounded activations; each of the three matrices has its scales.
    for number, (step, quantized, dequantized) in enumerate(((0.05, 2, 5), (None, 0, 3))):
        (folder := tmp_path / f"{number}").mkdir()
        rounded = {name: RoundedLinear(matrix, step) for name, matrix in matrices.items()}
        write_tensorrt_decoder(checkpoint, folder, max_length=MAX_LENGTH, rounded=rounded, progress=lambda _: None)
        layers, size = built(folder)
        assert (layers[trt.LayerType.QUANTIZE], layers[trt.LayerType.DEQUANTIZE]) == (quantized, dequantized)
        sizes.append(size)
    write_tensorrt_decoder(checkpoint, tmp_path, max_length=MAX_LENGTH, progress=lambda _: None)
    _, half = built(tmp_path)
    # A byte less each; what they are multiplied by is compiled in and takes some of it.
    assert half - max(sizes) > 0.7 * sum(matrix.levels.size for matrix in matrices.values())
