"""TensorRT for RTX parses and builds every family's graph, on a machine without a GPU.

Its parser and builder are TensorRT's; engines of it run on a GPU only, so no number is checked here.
"""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import tensorrt_rtx_bindings as trt
from family_models import FAMILY_CONFIGS, family_tensors, write_family

from ops.optimize.plan import make_plan
from ops.optimize.samples import collect
from workers.graph.safetensors_source import SafetensorsSource
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


def test_an_int8_mlp_is_built_of_bytes(tmp_path: Path) -> None:
    """The matrices are still int8 in what is built, whether their activations are rounded or not."""
    config = {**FAMILY_CONFIGS["llama"], "hidden_size": 256, "intermediate_size": 2_048, "head_dim": 64}
    write_family(tmp_path / "source", config, family_tensors(config, 1))
    checkpoint = SafetensorsSource.open(tmp_path / "source").checkpoint()
    texts = [list(range(seed, seed + 40)) for seed in range(4)]
    plan = make_plan(checkpoint, collect(checkpoint, texts, lambda _: None), lambda _: None)
    num_layers = checkpoint.architecture.num_layers
    # Gate and up share their rounded activations; each of the three matrices has its scales.
    whole = plan.at({}), 2 * num_layers, 5 * num_layers
    weights_alone = plan.at(dict.fromkeys(plan.matrices, "weights")), 0, 3 * num_layers
    nothing = plan.at(dict.fromkeys(plan.matrices, "fp16")), 0, 0
    sizes = []
    for number, ((even, int8), quantized, dequantized) in enumerate((whole, weights_alone, nothing)):
        (folder := tmp_path / f"{number}").mkdir()
        write_tensorrt_decoder(even, folder, max_length=MAX_LENGTH, int8=int8, progress=lambda _: None)
        layers, size = built(folder)
        assert (layers[trt.LayerType.QUANTIZE], layers[trt.LayerType.DEQUANTIZE]) == (quantized, dequantized)
        sizes.append(size)
    weights = sum(matrix.levels.size for matrix in plan.matrices.values())
    assert sizes[2] - max(sizes[:2]) > 0.9 * weights
