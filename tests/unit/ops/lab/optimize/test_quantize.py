"""`replyline optimize quantize` of a tiny model: published completely, or refused with nothing written.

nvidia-modelopt needs torch, which is not in the tests' environment: a replacement writes the same nodes, with its own
step size.
"""

import re
import sys
from io import StringIO
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper
from rich.console import Console

from ops.lab.optimize.options import QuantizeOptions
from ops.lab.optimize.quantize import quantize
from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder

STEP = 0.05
DOWN = [f"layers.{layer}.mlp.down_proj" for layer in (0, 1)]
OTHERS = [f"layers.{layer}.mlp.{part}_proj" for layer in (0, 1) for part in ("gate", "up")]


class Modelopt:
    """Keeps what it was asked for, and how many texts it was shown."""

    def __init__(self) -> None:
        self.asked: dict[str, Any] = {}
        self.shown: list[dict[str, np.ndarray]] = []

    def quantize(self, path: str, *, output_path: str, nodes_to_quantize: list[str], **asked: Any) -> None:
        self.asked = {**asked, "nodes": nodes_to_quantize}
        reader = asked["calibration_data_reader"]
        while (given := reader.get_next()) is not None:
            self.shown.append(given)
        model = onnx.load(path, load_external_data=False)
        graph, nodes = model.graph, []
        graph.initializer.append(numpy_helper.from_array(np.array(STEP, np.float32), "step"))
        graph.initializer.append(numpy_helper.from_array(np.zeros((), np.int8), "zero_point"))
        for node in graph.node:
            if node.op_type == "MatMul" and any(re.fullmatch(one, node.output[0]) for one in nodes_to_quantize):
                name = node.output[0]
                nodes += [
                    helper.make_node("QuantizeLinear", [node.input[0], "step", "zero_point"], [f"{name}.q"]),
                    helper.make_node("DequantizeLinear", [f"{name}.q", "step", "zero_point"], [f"{name}.dq"]),
                ]
                node.input[0] = f"{name}.dq"
            nodes.append(node)
        del graph.node[:]
        graph.node.extend(nodes)
        Path(output_path).write_bytes(model.SerializeToString())


@pytest.fixture
def modelopt(monkeypatch: pytest.MonkeyPatch) -> Modelopt:
    stands_in = Modelopt()
    for name in ("modelopt", "modelopt.onnx", "modelopt.onnx.quantization"):
        module = ModuleType(name)
        module.quantize = stands_in.quantize  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, name, module)
    return stands_in


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """800 texts, short enough for a vocabulary of bytes."""
    lines = [
        *({"text": f"where is parcel number {n}"} for n in range(400)),
        *({"text": f"whar be me parcel {n}", "rare": True} for n in range(200)),
        *({"text": f"where is AX-{n:04}-B"} for n in range(200)),
    ]
    file = tmp_path_factory.mktemp("texts") / "texts.jsonl"
    file.write_bytes(b"\n".join(msgspec.json.encode({**line, "consented": True}) for line in lines))
    return file


@pytest.fixture
def options(texts: Path, tiny_source: Path, tmp_path: Path) -> QuantizeOptions:
    return QuantizeOptions(
        calibration=str(texts),
        out=tmp_path / "made" / "tiny-int8-mlp",
        source=tiny_source,
        models=tmp_path / "models",
        bound=0.5,
        exclude="*.down_proj",
        max_length=128,
        texts=500,
        held_out=20,
        seed=1,
        mlp="int8",
    )


def test_a_model_is_published_with_the_steps_that_were_found(options: QuantizeOptions, modelopt: Modelopt) -> None:
    shown = StringIO()
    assert quantize(options, Console(file=shown, width=200)) == 0
    folder = ModelFolder.open(options.out, verify=True)
    manifest = folder.manifest
    assert (manifest.precision, manifest.dialect, manifest.max_length) == ("int8-mlp", "tensorrt", 136)
    assert [path.name for path in options.out.parent.iterdir()] == ["tiny-int8-mlp"]
    assert "activations of 4 of 6 matrices in 8 bits" in shown.getvalue()
    assert all(f"{kind} 0." in shown.getvalue() or f"{kind} 1." in shown.getvalue() for kind in ("rare", "sku"))
    graph = onnx.load(folder.graph_path, load_external_data=False).graph
    stored = {tensor.name for tensor in graph.initializer if tensor.data_type == onnx.TensorProto.INT8}
    assert {f"{name}.levels" for name in (*DOWN, *OTHERS)} <= stored
    before = {node.output[0]: node.input[0] for node in graph.node if node.op_type == "MatMul"}
    rounded = {node.output[0] for node in graph.node if node.op_type == "DequantizeLinear"}
    assert all(before[f"{name}.out"] in rounded for name in OTHERS)
    assert not any(before[f"{name}.out"] in rounded for name in DOWN)


def test_500_texts_are_shown_and_the_mlp_alone_is_asked_for(options: QuantizeOptions, modelopt: Modelopt) -> None:
    quantize(msgspec.structs.replace(options, exclude=""), Console(file=StringIO()))
    assert len(modelopt.shown) == 500
    assert modelopt.asked["op_types_to_quantize"] == ["MatMul"]
    assert [one.replace("\\", "").removesuffix(".out") for one in modelopt.asked["nodes"]] == [
        f"layers.{layer}.mlp.{part}_proj" for layer in (0, 1) for part in ("gate", "up", "down")
    ]


def test_below_the_bound_nothing_is_written(
    options: QuantizeOptions, modelopt: Modelopt, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """So large a step rounds all that there is away."""
    monkeypatch.setattr(sys.modules[__name__], "STEP", 1e4)
    assert quantize(msgspec.structs.replace(options, bound=1.0, exclude=""), Console(file=StringIO())) == 1
    assert not options.out.parent.exists()
    [line] = capsys.readouterr().err.splitlines()
    assert re.search(r"agreement with the original \(common 0\.\d+, .*\) is below --bound 1\.0: nothing was", line)


def test_without_modelopt_the_command_is_named(options: QuantizeOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "modelopt.onnx.quantization", None)
    monkeypatch.setitem(sys.modules, "modelopt", None)
    with pytest.raises(SettingsError, match=r"nvidia-modelopt cannot be used .*pip install 'replyline\[modelopt\]'"):
        quantize(options, Console(file=StringIO()))
    assert not options.out.parent.exists()


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"calibration": "/nowhere.jsonl"}, SettingsError, "--calibration /nowhere.jsonl: No such file or directory"),
        ({"exclude": "layers.7.*"}, SettingsError, "--exclude layers.7.*"),
        ({"source": Path("/nowhere")}, ModelError, "/nowhere does not exist"),
        ({"max_length": 64}, SettingsError, "0 texts to calibrate with"),
        ({"max_length": 100_000}, SettingsError, "--max-length 100000: tiny has 256 positions"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_bad_input_is_one_line_and_nothing_is_written(
    options: QuantizeOptions, change: dict[str, object], error: type[Exception], message: str
) -> None:
    with pytest.raises(error) as refused:
        quantize(msgspec.structs.replace(options, **change), Console(file=StringIO()))
    assert message in str(refused.value)
    assert not options.out.parent.exists()
