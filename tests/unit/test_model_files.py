"""A model's file that lies is refused in one line, before anything in it is run, reserved or believed."""

import ast
import io
import json
import os
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest
from model_fixtures import TINY, safetensors, write_llama
from onnx import TensorProto, helper

from ops.model import prepare_model
from shared.errors import ModelError
from shared.model_folder import GRAPH, GRAPH_DATA, MANIFEST, TOKENIZER, Manifest, ModelFolder, file_entry
from shared.tokenizer import Tokenizer
from workers.engine.loading import load_model
from workers.engine.onnx import OnnxEngine
from workers.graph.gguf_source import GgufSource
from workers.graph.safetensors_source import _tensors
from workers.graph.source import open_source

ROOT = Path(__file__).parents[2]


class Payload:
    """Whoever unpickles it makes the file."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


def pickled(mark: Path) -> bytes:
    return pickle.dumps(Payload(mark))


def torch_zip(mark: Path) -> bytes:
    """As `torch.save` writes it: a zip with a pickle in it."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled(mark))
        archive.writestr("archive/data/0", b"\0" * 64)
    return file.getvalue()


def numpy_objects(mark: Path) -> bytes:
    file = io.BytesIO()
    np.save(file, np.array([Payload(mark)], dtype=object), allow_pickle=True)
    return file.getvalue()


# --- safetensors


def st(header: object, data: bytes = b"", *, length: int | None = None) -> bytes:
    encoded = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(encoded) if length is None else length).to_bytes(8, "little") + encoded + data


def entry(start: int = 0, stop: int = 24, **changed: Any) -> dict[str, Any]:
    return {"dtype": "F32", "shape": [2, 3], "data_offsets": [start, stop], **changed}


ONE = b"\0" * 24
SAFETENSORS: dict[str, bytes | Callable[[Path], bytes]] = {
    "a pickle": pickled,
    "what torch.save writes": torch_zip,
    "an array of objects": numpy_objects,
    "nothing": b"",
    "seven bytes": b"\0" * 7,
    "a header longer than the file": st({}, length=10_000),
    "a header of 2^63 bytes": st({}, length=2**63),
    "a header of 2^64 - 1 bytes": st({}, length=2**64 - 1),
    "a header above the format's limit": st({}, length=100_000_001),
    "a header that is no JSON": st(b"\xff" * 64),
    "a header that is a list": st([1]),
    "a header that is a number": st(5),
    "a deep header": st(b'{"a":' * 100_000),
    "a deep shape": st(b'{"a":{"dtype":"F32","data_offsets":[0,4],"shape":' + b"[" * 100_000),
    "a number of a million digits": st(b'{"a":' + b"9" * 1_000_000 + b"}"),
    "a tensor that is no object": st({"a": 5}),
    "no shape": st({"a": {"dtype": "F32", "data_offsets": [0, 24]}}, ONE),
    "a name twice": st(b'{"a":' + json.dumps(entry()).encode() + b',"a":' + json.dumps(entry()).encode() + b"}", ONE),
    "a field twice": st(b'{"a":{"dtype":"F32","dtype":"F16","shape":[2,3],"data_offsets":[0,24]}}', ONE),
    "two tensors in one place": st({"a": entry(), "b": entry()}, ONE),
    "tensors that overlap": st({"a": entry(), "b": entry(12, 36)}, ONE + ONE),
    "a hole": st({"a": entry(), "b": entry(32, 56)}, b"\0" * 56),
    "bytes that belong to nobody": st({"a": entry()}, ONE + b"x"),
    "an offset behind the end": st({"a": entry(24, 48)}, ONE),
    "an offset of 2^60": st({"a": entry(2**60, 2**60 + 24)}, ONE),
    "an offset of 2^70": st({"a": entry(2**70, 2**70 + 24)}, ONE),
    "a negative offset": st({"a": entry(-24, 0)}, ONE),
    "offsets the wrong way round": st({"a": entry(24, 0)}, ONE),
    "a fraction for an offset": st({"a": entry(0, 24.5)}, ONE),
    "cut off": st({"a": entry()}, ONE[:-1]),
    "a shape that overflows": st({"a": entry(0, 0, shape=[2**32, 2**32])}),
    "a shape that overflows to its size": st({"a": entry(0, 24, shape=[2**53, 2**11, 6])}, ONE),
    "a shape of negative numbers": st({"a": entry(shape=[-2, -3])}, ONE),
    "another shape than the bytes": st({"a": entry(shape=[3, 3])}, ONE),
    "a dtype that nobody knows": st({"a": entry(dtype="PICKLE")}, ONE),
    "a dtype that is an object": st({"a": entry(dtype={})}, ONE),
    "objects of numpy": st({"a": entry(dtype="O")}, ONE),
}


def one_line(error: ModelError) -> str:
    text = str(error)
    assert "\n" not in text
    assert len(text) < 1_500
    return text


@pytest.mark.parametrize("what", SAFETENSORS)
def test_safetensors_that_lie_are_refused(tmp_path: Path, what: str) -> None:
    made = SAFETENSORS[what]
    source, mark = tmp_path / "tiny", tmp_path / "mark"
    write_llama(source, TINY, seed=1)
    (source / "model.safetensors").write_bytes(made if isinstance(made, bytes) else made(mark))
    for read in (lambda: _tensors(source / "model.safetensors"), lambda: open_source(source)):
        with pytest.raises(ModelError) as caught:
            read()
        one_line(caught.value)
    assert not mark.exists(), "it was unpickled"


def test_safetensors_that_do_not_lie_are_read(tmp_path: Path) -> None:
    """The control: what the others were made from."""
    file = tmp_path / "model.safetensors"
    for header, data in (({}, b""), ({"a": entry()}, ONE), ({"b": entry(24, 48), "a": entry()}, ONE + ONE)):
        file.write_bytes(st({"__metadata__": {"format": "pt"}, **header}, data))
        assert _tensors(file).keys() == header.keys()


def test_the_tensors_of_another_model_are_refused(tmp_path: Path) -> None:
    source = tmp_path / "tiny"
    write_llama(source, TINY, seed=1)
    (source / "model.safetensors").write_bytes(safetensors({"a": np.ones((2, 3), np.float32)}))
    with pytest.raises(ModelError, match="the checkpoint lacks"):
        open_source(source)


@pytest.mark.parametrize("name", ["pytorch_model.bin", "model.pt", "model.ckpt", "model.pkl", "model.npz"])
def test_a_checkpoint_in_another_format_is_never_opened(tmp_path: Path, name: str) -> None:
    source, mark = tmp_path / "tiny", tmp_path / "mark"
    write_llama(source, TINY, seed=1)
    (source / "model.safetensors").unlink()
    (source / name).write_bytes(pickled(mark))
    for path in (source, source / name):
        with pytest.raises(ModelError) as caught:
            open_source(path)
        one_line(caught.value)
    assert not mark.exists()


@pytest.mark.parametrize(
    "name", ["../outside.safetensors", "/etc/passwd", "sub/model.safetensors", "weights.bin", ".."]
)
def test_an_index_names_no_file_outside_its_folder(tmp_path: Path, name: str) -> None:
    source = tmp_path / "tiny"
    write_llama(source, TINY, seed=1)
    shutil.copy(source / "model.safetensors", tmp_path / "outside.safetensors")
    (source / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    with pytest.raises(ModelError, match="elsewhere than in its folder") as caught:
        open_source(source)
    one_line(caught.value)


@pytest.mark.parametrize(
    "changed",
    [
        {"num_hidden_layers": 2**60},
        {"num_hidden_layers": 10**9},
        {"num_hidden_layers": -1},
        {"num_attention_heads": 0},
        {"num_key_value_heads": -2},
        {"vocab_size": 2**62},
        {"hidden_size": 0},
        {"head_dim": 2**40},
        {"architectures": []},
        {"rope_theta": "x"},
    ],
    ids=str,
)
def test_a_configuration_of_numbers_that_cannot_be_is_refused(tmp_path: Path, changed: dict[str, Any]) -> None:
    """At once: nothing is reserved or counted by them."""
    source = tmp_path / "tiny"
    write_llama(source, TINY, seed=1)
    config = json.loads((source / "config.json").read_text()) | changed
    (source / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError) as caught:
        open_source(source)
    one_line(caught.value)


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "model.safetensors.index.json"])
@pytest.mark.parametrize("text", [b'{"x":' * 100_000, b"\xff\xfe", b"", b"[]", b"{}", b"\x80\x04K\x01."])
def test_json_that_is_none_or_has_no_end_is_refused(tmp_path: Path, name: str, text: bytes) -> None:
    source = tmp_path / "tiny"
    write_llama(source, TINY, seed=1)
    (source / name).write_bytes(text)
    with pytest.raises(ModelError) as caught:
        open_source(source)
    one_line(caught.value)


# --- GGUF


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def field(key: str, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def gguf(*parts: bytes, tensors: int = 0, fields: int = 0, version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, fields) + b"".join(parts)


def array(kind: int, length: int) -> bytes:
    return struct.pack("<IQ", kind, length)


def tensor(*dims: int, kind: int = 0, offset: int = 0, name: str = "a", num_dims: int | None = None) -> bytes:
    count = len(dims) if num_dims is None else num_dims
    return (
        text(name) + struct.pack("<I", count) + struct.pack(f"<{len(dims)}Q", *dims) + struct.pack("<IQ", kind, offset)
    )


def padded(data: bytes) -> bytes:
    """Up to where the tensors begin."""
    return data + b"\0" * (-len(data) % 32)


STRING, ARRAY, UINT8, UINT32 = 8, 9, 0, 4
GGUF: dict[str, bytes | Callable[[Path], bytes]] = {
    "a pickle": pickled,
    "what torch.save writes": torch_zip,
    "an array of objects": numpy_objects,
    "a pickle behind the right beginning": lambda mark: b"GGUF" + pickled(mark),
    "nothing": b"",
    "three bytes": b"GGU",
    "no more than the beginning": b"GGUF",
    "the old format": b"ggml" + b"\0" * 64,
    "a version to come": gguf(version=99),
    "version 0": gguf(version=0),
    "the other byte order": b"GGUF" + struct.pack(">IQQ", 3, 0, 0),
    "2^60 fields": gguf(fields=2**60),
    "2^64 - 1 tensors": gguf(tensors=2**64 - 1),
    "more fields than there are": gguf(field("a", UINT8, b"\1"), fields=2),
    "a key of 2^60 bytes": gguf(struct.pack("<Q", 2**60) + b"a" * 64, fields=1),
    "a text of 2^60 bytes": gguf(field("a", STRING, struct.pack("<Q", 2**60)), fields=1),
    "a text of 2^64 - 1 bytes": gguf(field("a", STRING, struct.pack("<Q", 2**64 - 1)), fields=1),
    "an array of 2^60 bytes": gguf(field("a", ARRAY, array(UINT8, 2**60)), fields=1),
    "an array of 2^40 numbers": gguf(field("a", ARRAY, array(UINT32, 2**40) + b"\0" * 64), fields=1),
    "an array of 2^60 texts": gguf(field("a", ARRAY, array(STRING, 2**60) + text("x")), fields=1),
    "an array of arrays": gguf(field("a", ARRAY, array(ARRAY, 1) * 5_000), fields=1),
    "a type that nobody knows": gguf(field("a", 77, b"\0" * 8), fields=1),
    "an array of a type that nobody knows": gguf(field("a", ARRAY, array(77, 1)), fields=1),
    "a key that is no text": gguf(text(b"\xff\xfe") + struct.pack("<IB", UINT8, 1), fields=1),
    "a key twice": gguf(field("a", UINT8, b"\1") * 2, fields=2),
    "2^31 dimensions": gguf(tensor(num_dims=2**31), tensors=1),
    "dimensions that overflow": gguf(tensor(2**33, 2**33), tensors=1),
    "dimensions that overflow to one": gguf(tensor(2**63 + 1, 2, 2**63 + 1), tensors=1),
    "a tensor of 2^40 elements": gguf(tensor(2**40), tensors=1),
    "a tensor behind the end": gguf(tensor(4, offset=2**50) + b"\0" * 64, tensors=1),
    "a tensor that is cut off": gguf(tensor(64) + b"\0" * 64, tensors=1),
    "a tensor of a type that nobody knows": gguf(tensor(4, kind=999) + b"\0" * 64, tensors=1),
    "a tensor twice": gguf(tensor(4) * 2 + b"\0" * 128, tensors=2),
    "an alignment of 0": gguf(field("general.alignment", UINT32, b"\0" * 4), fields=1),
}
GGUF_OF_NOTHING: dict[str, bytes] = {
    "no architecture": gguf(field("a", UINT8, b"\1"), fields=1),
    "an architecture that is a list": gguf(
        field("general.architecture", ARRAY, array(STRING, 1) + text("llama")), fields=1
    ),
    "no heads": gguf(
        field("general.architecture", STRING, text("llama")),
        field("llama.attention.head_count", UINT32, struct.pack("<I", 0)),
        field("llama.embedding_length", UINT32, struct.pack("<I", 64)),
        fields=3,
    ),
}


@pytest.mark.parametrize("what", GGUF)
def test_gguf_that_lies_is_refused(tmp_path: Path, what: str) -> None:
    """In the time that it takes to read it, whatever it says of itself."""
    made = GGUF[what]
    path, mark = tmp_path / "model.gguf", tmp_path / "mark"
    path.write_bytes(made if isinstance(made, bytes) else made(mark))
    for read in (GgufSource.open, open_source):
        with pytest.raises(ModelError) as caught:
            read(path)
        one_line(caught.value)
    assert not mark.exists(), "it was unpickled"


def test_gguf_that_does_not_lie_is_read(tmp_path: Path) -> None:
    """The control: what the others were made from."""
    path = tmp_path / "model.gguf"
    path.write_bytes(padded(gguf(field("a", UINT8, b"\1"), tensor(4), fields=1, tensors=1)) + ONE)
    opened = GgufSource.open(path)
    assert (opened.metadata["a"], list(opened.tensors)) == (1, ["a"])


@pytest.mark.parametrize("what", GGUF_OF_NOTHING)
def test_gguf_that_describes_no_model_is_refused(tmp_path: Path, what: str) -> None:
    path = tmp_path / "model.gguf"
    path.write_bytes(padded(GGUF_OF_NOTHING[what]))
    with pytest.raises(ModelError) as caught:
        open_source(path)
    one_line(caught.value)


# --- a prepared folder


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("prepared")
    write_llama(base / "tiny", TINY, seed=3)
    return prepare_model(base / "models", "fp32", source=base / "tiny").path


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "model"))


def rewrite(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    manifest = json.loads((folder / MANIFEST).read_text())
    change(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


def flip(path: Path) -> None:
    """One bit, the size as it was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def move_out(folder: Path, name: str) -> None:
    """The file lies elsewhere, and a link to it here."""
    elsewhere = folder.parent / "elsewhere"
    shutil.move(folder / name, elsewhere)
    (folder / name).symlink_to(elsewhere)


TAMPERED: dict[str, tuple[Callable[[Path], object], str]] = {
    **{
        f"{name}: {what}": (lambda folder, name=name, change=change: change(folder / name), line)
        for name in (GRAPH, GRAPH_DATA, TOKENIZER)
        for what, change, line in (
            ("a bit is flipped", flip, "differs from its manifest's sha256"),
            ("cut off", lambda path: os.truncate(path, path.stat().st_size - 1), "its manifest says"),
            ("missing", lambda path: path.unlink(), "is missing"),
            ("a pickle", lambda path: path.write_bytes(pickled(path.with_name("mark"))), "its manifest says"),
            ("a folder", lambda path: (path.unlink(), path.mkdir()), "is missing"),
        )
    },
    **{
        f"{name}: a link out of the folder": (lambda folder, name=name: move_out(folder, name), "not in its folder")
        for name in (GRAPH, GRAPH_DATA, TOKENIZER)
    },
    **{
        f"the manifest leaves out {name}": (
            lambda folder, name=name: rewrite(
                folder, lambda m: m.update(files=[file for file in m["files"] if file["name"] != name])
            ),
            f"does not name {name}",
        )
        for name in (GRAPH, GRAPH_DATA, TOKENIZER)
    },
    **{
        f"the manifest names {name}": (
            lambda folder, name=name: rewrite(
                folder, lambda m: m["files"].append({"name": name, "size": 1, "sha256": ""})
            ),
            "not in its folder",
        )
        for name in ("../../etc/passwd", "/etc/passwd", "..", "sub/model.onnx", "")
    },
    **{
        f"the manifest says {key}={value}": (
            lambda folder, key=key, value=value: rewrite(folder, lambda m: m["architecture"].update({key: value})),
            "is damaged",
        )
        for key, value in (("num_layers", 2**60), ("vocab_size", 2**53), ("num_heads", 0), ("head_dim", -1))
    },
    "a manifest that is a pickle": (
        lambda folder: (folder / MANIFEST).write_bytes(pickled(folder / "mark")),
        "is damaged",
    ),
    "a deep manifest": (lambda folder: (folder / MANIFEST).write_bytes(b'{"x":' * 100_000), "is damaged"),
    "a manifest of 2 MB": (
        lambda folder: rewrite(folder, lambda m: m.update(padding="x" * 2_000_000)),
        "is damaged",
    ),
}


@pytest.mark.parametrize("what", TAMPERED)
def test_a_folder_that_is_not_as_its_manifest_says_is_refused_before_anything_is_parsed(
    folder: Path, what: str
) -> None:
    tamper, line = TAMPERED[what]
    tamper(folder)
    with pytest.raises(ModelError, match=line) as caught:
        ModelFolder.open(folder, verify=True)
    one_line(caught.value)
    assert not (folder / "mark").exists()


def test_a_worker_compares_the_sha256_before_it_loads(folder: Path) -> None:
    """The control first: as it was prepared it is loaded."""
    from shared.settings import Settings

    settings = Settings.model_validate(
        {"model": {"dir": folder}, "worker": {"max_length": 64, "slots": 1, "threads": 1}}
    )
    load_model(settings).engine.close()
    flip(folder / GRAPH_DATA)
    with pytest.raises(ModelError, match="sha256"):
        load_model(settings)


def test_a_gateway_compares_the_sha256_of_the_tokenizer_that_it_reads(folder: Path) -> None:
    assert Tokenizer.load(folder).vocab_size > 0
    flip(folder / TOKENIZER)
    with pytest.raises(ModelError, match="sha256"):
        Tokenizer.load(folder)


def with_true_manifest(folder: Path) -> ModelFolder:
    """Whoever tampered with the folder wrote the manifest anew."""
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


@pytest.mark.parametrize("what", ONNX)
def test_a_graph_that_lies_is_refused_though_its_manifest_is_true(folder: Path, what: str) -> None:
    (folder.parent / "secret").write_bytes(b"\0" * 16)
    (folder / "link").symlink_to(folder.parent / "secret")
    (folder / GRAPH).write_bytes(ONNX[what](folder))
    opened = with_true_manifest(folder)
    with pytest.raises(ModelError, match="ONNX Runtime cannot load") as caught:
        OnnxEngine(opened, num_slots=1, max_length=64, threads=1)
    one_line(caught.value)
    assert not (folder / "mark").exists()


# --- no reader that runs what it reads

FORBIDDEN_MODULES = {"pickle", "cPickle", "_pickle", "dill", "cloudpickle", "shelve", "marshal", "joblib", "jsonpickle"}
FORBIDDEN_CALLS = {"torch.load", "np.load", "numpy.load", "joblib.load", "yaml.load", "pickle.load", "pickle.loads"}
CODE = sorted(path for package in ("gateway", "ops", "shared", "workers") for path in (ROOT / package).rglob("*.py"))


def dangers_in(source: str) -> set[str]:
    """What in a module reads by running: imports, calls, and `allow_pickle=True`."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names if alias.name.partition(".")[0] in FORBIDDEN_MODULES}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] in FORBIDDEN_MODULES:
            found.add(node.module or "")
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            literal = [arg.value for arg in node.args if isinstance(arg, ast.Constant)]
            if name in FORBIDDEN_CALLS and not _safe(node):
                found.add(name)
            if name in {"importlib.import_module", "__import__"} and FORBIDDEN_MODULES & set(map(str, literal)):
                found.add(name)
            if name in {"eval", "exec"}:
                found.add(name)
        elif isinstance(node, ast.keyword) and node.arg == "allow_pickle" and ast.unparse(node.value) != "False":
            found.add("allow_pickle")
    return found


def _safe(call: ast.Call) -> bool:
    """`torch.load(weights_only=True)` and `np.load(allow_pickle=False)` run nothing."""
    given = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
    return given.get("weights_only") == "True" or given.get("allow_pickle") == "False"


def test_no_module_reads_by_running_what_it_reads() -> None:
    assert len(CODE) > 100
    assert {str(path.relative_to(ROOT)): found for path in CODE if (found := dangers_in(path.read_text()))} == {}


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import pickle as p",
        "from pickle import loads",
        "def f():\n    import dill",
        "from joblib.numpy_pickle import load",
        "import marshal, json",
        "import numpy as np\nnp.load('x')",
        "import numpy as np\nnp.load('x', allow_pickle=True)",
        "np.lib.format.read_array(f, allow_pickle=flag)",
        "torch.load('x')",
        "torch.load('x', weights_only=False)",
        "importlib.import_module('pickle')",
        "__import__('shelve')",
        "eval(x)",
    ],
)
def test_such_a_reader_would_be_found(source: str) -> None:
    assert dangers_in(source)
