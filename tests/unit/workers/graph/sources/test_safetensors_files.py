"""A checkpoint of safetensors that lies is refused in one line, before anything in it is run, reserved or believed."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shared.errors import ModelError
from tests.support.hostile.lying_files import numpy_objects, one_line, pickled, torch_zip
from tests.support.models.fixtures import TINY, safetensors, write_llama
from workers.graph.sources.opening import open_source
from workers.graph.sources.safetensors import tensors_of


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


def refuse_safetensors(what: str, base: Path) -> None:
    made = SAFETENSORS[what]
    source, mark = base / "tiny", base / "mark"
    write_llama(source, TINY, seed=1)
    (source / "model.safetensors").write_bytes(made if isinstance(made, bytes) else made(mark))
    for read in (lambda: tensors_of(source / "model.safetensors"), lambda: open_source(source)):
        with pytest.raises(ModelError) as caught:
            read()
        one_line(caught.value)
    assert not mark.exists(), "it was unpickled"


@pytest.mark.parametrize("what", SAFETENSORS)
def test_safetensors_that_lie_are_refused(tmp_path: Path, what: str) -> None:
    refuse_safetensors(what, tmp_path)


def test_safetensors_that_do_not_lie_are_read(tmp_path: Path) -> None:
    """The control: what the others were made from."""
    file = tmp_path / "model.safetensors"
    for header, data in (({}, b""), ({"a": entry()}, ONE), ({"b": entry(24, 48), "a": entry()}, ONE + ONE)):
        file.write_bytes(st({"__metadata__": {"format": "pt"}, **header}, data))
        assert tensors_of(file).keys() == header.keys()


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
    """Immediately: nothing is allocated or counted for them."""
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
