"""A graph that lies is refused in one line, though its manifest is true."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import onnx
import pytest
from onnx import TensorProto, helper

from shared.errors import ModelError
from shared.model.folder import GRAPH, GRAPH_DATA, MANIFEST, Manifest, ModelFolder, file_entry
from tests.support.hostile.lying_files import numpy_objects, one_line, pickled, torch_zip
from workers.engine.onnx import OnnxEngine


def with_true_manifest(folder: Path) -> ModelFolder:
    """Change the folder and write a new manifest, like an attacker."""
    manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
    files = tuple(file_entry(folder / file.name) for file in manifest.files)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(msgspec.structs.replace(manifest, files=files)))
    return ModelFolder.open(folder, verify=True)


def graph_with_data_at(location: str) -> bytes:
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        weight.external_data.add(key=key, value=value)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [4])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, [4])
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", [given], [result], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    model.ir_version = 8
    onnx.checker.check_model(model) if location == GRAPH_DATA else None
    data: bytes = model.SerializeToString()
    return data


ONNX: dict[str, Callable[[Path], bytes]] = {
    "a pickle": lambda folder: pickled(folder / "mark"),
    "what torch.save writes": lambda folder: torch_zip(folder / "mark"),
    "an array of objects": lambda folder: numpy_objects(folder / "mark"),
    "nothing": lambda _: b"",
    "noise": lambda _: bytes(range(256)) * 8,
    "cut off": lambda folder: (folder / GRAPH).read_bytes()[:-100],
    "weights in a parent folder": lambda _: graph_with_data_at("../secret"),
    "weights two folders up": lambda _: graph_with_data_at("x/../../secret"),
    "weights at an absolute path": lambda folder: graph_with_data_at(str(folder.parent / "secret")),
    "weights behind a link": lambda _: graph_with_data_at("link"),
    "weights that are not there": lambda _: graph_with_data_at("missing"),
}


def refuse_graph(what: str, folder: Path) -> None:
    (folder.parent / "secret").write_bytes(b"\0" * 16)
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / GRAPH).write_bytes(ONNX[what](folder))
    opened = with_true_manifest(folder)
    with pytest.raises(ModelError, match="ONNX Runtime cannot load") as caught:
        OnnxEngine(opened, num_slots=1, max_length=64, threads=1)
    one_line(caught.value)
    assert not (folder / "mark").exists()


@pytest.mark.parametrize("what", ONNX)
def test_a_graph_that_lies_is_refused_though_its_manifest_is_true(folder: Path, what: str) -> None:
    refuse_graph(what, folder)
