"""The steps of 8-bit activations as determined by nvidia-modelopt: the largest value that occurs on the texts.

modelopt reads TensorRT's graph in float32 and runs it on the CPU, but the graph that it writes keeps KV in float32
behind casts, outside the slots that TensorRT writes in place. Therefore only the steps are used, and the graph is our
own.
"""

import tempfile
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

from shared.errors import SettingsError
from shared.model.folder import GRAPH, Architecture, refuse_experts
from shared.process.extras import install_command
from workers.graph.decoder import cache_names
from workers.graph.eight_bit.quantize import GridName
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.tensorrt import write_tensorrt_decoder


def mlp_matrices(architecture: Architecture) -> list[str]:
    """Return `layers.0.mlp.gate_proj` and the others, in the order in which they are computed.

    Raises `ModelError` for a mixture of experts.
    """
    refuse_experts(architecture, "optimize quantize", "run: replyline model prepare --precision int8")
    layers = range(architecture.num_layers)
    return [f"layers.{layer}.mlp.{part}_proj" for layer in layers for part in ("gate", "up", "down")]


def left_by(names: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """Return the linear layers that match none of the patterns. Raises `SettingsError` for a pattern without a
    match."""
    for pattern in exclude:
        if not any(fnmatchcase(name, pattern) for name in names):
            raise SettingsError(f"--exclude {pattern}: matches none of the MLP's matrices, such as {names[0]}")
    return [name for name in names if not any(fnmatchcase(name, pattern) for pattern in exclude)]


def activation_steps(
    checkpoint: Checkpoint, texts: Sequence[Sequence[int]], names: Sequence[str], mlp: GridName
) -> dict[str, float]:
    """Return the activation step of each linear layer in `names` on the texts. modelopt omits products of one row:
    those of the last layer, for which the graph computes only a text's last token.

    Raises `SettingsError` if modelopt is not installed.
    """
    if not names:
        return {}
    try:
        from modelopt.onnx.quantization import quantize
    except ImportError as error:
        reason = " ".join(str(error).split())
        raise SettingsError(f"nvidia-modelopt cannot be used ({reason}); run: {install_command('modelopt')}") from None
    onnxruntime.set_default_logger_severity(3)  # otherwise it warns about each slot that it copies
    with tempfile.TemporaryDirectory(prefix="replyline-quantize-") as scratch:
        folder, written = Path(scratch), Path(scratch) / "rounded.onnx"
        length = max(map(len, texts))
        write_tensorrt_decoder(checkpoint, folder, max_length=length, dtype=np.dtype("f4"), progress=lambda _: None)
        quantize(
            str(folder / GRAPH),
            quantize_mode=mlp,
            calibration_method="max",
            calibration_data_reader=_reader(checkpoint.architecture, texts, length),
            calibration_eps=["cpu"],
            op_types_to_quantize=["MatMul"],
            nodes_to_quantize=[f"{name}.out".replace(".", r"\.") for name in names],
            high_precision_dtype="fp32",
            use_external_data_format=True,
            output_path=str(written),
            log_level="ERROR",
        )
        return steps_of(onnx.load(written, load_external_data=False), names)


def steps_of(model: Any, names: Sequence[str]) -> dict[str, float]:
    """Return the steps of the `QuantizeLinear` and `DequantizeLinear` before each product."""
    values = {tensor.name: tensor for tensor in model.graph.initializer}
    dequantized = {node.output[0]: node for node in model.graph.node if node.op_type == "DequantizeLinear"}
    products = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "MatMul"}
    found = {name: dequantized.get(products.get(f"{name}.out", "")) for name in names}
    return {name: float(numpy_helper.to_array(values[node.input[1]])) for name, node in found.items() if node}


def _reader(architecture: Architecture, texts: Sequence[Sequence[int]], length: int) -> Any:
    from onnxruntime.quantization import CalibrationDataReader

    slot = np.zeros((1, architecture.num_kv_heads, length, architecture.head_dim), np.float32)
    slots = dict.fromkeys(cache_names("past", architecture.num_layers), slot)

    class Reader(CalibrationDataReader):  # type: ignore[misc]
        """Returns one text per call, with empty slots."""

        def __init__(self) -> None:
            self.rewind()

        def rewind(self) -> None:
            self._left: Iterator[Sequence[int]] = iter(texts)

        def get_first(self) -> dict[str, Any]:
            return self.given(texts[0])

        def get_next(self) -> dict[str, Any] | None:
            text = next(self._left, None)
            return None if text is None else self.given(text)

        def given(self, text: Sequence[int]) -> dict[str, Any]:
            ids, last = np.array([text], np.int64), np.array([[len(text) - 1]], np.int64)
            return {"input_ids": ids, "last_index": last, "past_lengths": np.zeros(1, np.int64), **slots}

    return Reader()
