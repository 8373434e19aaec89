"""A folder of precision q4 holds the GGUF file's own numbers; what has none is refused in one line."""

from pathlib import Path

import gguf
import msgspec
import numpy as np
import pytest

from ops.model.prepare import DEMO_ADAPTER, default_source, prepare_model
from shared.errors import ModelError, SettingsError
from shared.model.folder import NATIVE, TOKENIZER, ModelFolder, write_manifest
from shared.settings import Settings
from tests.support.models.gguf_files import write_gguf
from tests.support.models.packed import PackedFile, dequantized, packed_checkpoint
from workers.engine.load_model import load_model
from workers.graph.sources.gguf import GgufSource


def packed_of(folder: ModelFolder) -> PackedFile:
    return PackedFile((folder.path / NATIVE).read_bytes(), folder.manifest.architecture)


@pytest.mark.parametrize("kind", ["Q4_0", "Q4_1"])
def test_layers_are_kept_to_the_bit(tmp_path: Path, tiny_source: Path, kind: str) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_source, kind=kind)
    folder = prepare_model(tmp_path, "q4", source=tmp_path / "tiny.gguf")
    assert folder.path.name == "tiny-q4"
    assert folder.manifest.dialect == "native"
    assert {entry.name for entry in folder.manifest.files} == {NATIVE, TOKENIZER}
    source = GgufSource.open(tmp_path / "tiny.gguf").checkpoint()
    packed = packed_of(folder)
    found = packed_checkpoint(packed)
    for name in found.weights:
        if name == "embed_tokens":
            steps = packed.blocks("embed").scales.astype(np.float32).max()
            np.testing.assert_allclose(found.read(name), source.read(name), rtol=0, atol=0.51 * steps)
        else:
            assert np.array_equal(found.read(name), source.read(name)), name
    assert set(np.unique(packed.blocks("layers.0.down").levels)) == set(range(16))


def test_the_default_models_weights_are_kept_to_the_bit(tmp_path: Path) -> None:
    """By gguf's own dequantisation; a matrix of each shape, and queries' and keys' rows in the other order."""
    folder = prepare_model(tmp_path, "q4")
    packed, a = packed_of(folder), folder.manifest.architecture
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(default_source()).tensors}

    def stored(name: str) -> np.ndarray:
        tensor = tensors[f"blk.17.{name}.weight"]
        return gguf.dequantize(tensor.data, tensor.tensor_type)

    def half_split(rows: np.ndarray, heads: int) -> np.ndarray:
        by_head = rows.reshape(heads, a.head_dim, -1)
        return np.concatenate([by_head[:, ::2], by_head[:, 1::2]], axis=1).reshape(rows.shape)

    query, key = half_split(stored("attn_q"), a.num_heads), half_split(stored("attn_k"), a.num_kv_heads)
    qkv = dequantized(packed.blocks("layers.17.qkv"))
    assert np.array_equal(qkv, np.concatenate([query, key, stored("attn_v")]))
    assert np.array_equal(dequantized(packed.blocks("layers.17.o")), stored("attn_output"))
    both = dequantized(packed.blocks("layers.17.gate_up")).reshape(-1, 2, 16, a.hidden_size)
    assert np.array_equal(both[:, 0].reshape(-1, a.hidden_size), stored("ffn_gate"))
    assert np.array_equal(both[:, 1].reshape(-1, a.hidden_size), stored("ffn_up"))
    assert np.array_equal(dequantized(packed.blocks("layers.17.down")), stored("ffn_down"))


def test_only_the_native_engine_takes_it(tmp_path: Path, tiny_source: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_source, kind="Q4_0")
    directory = prepare_model(tmp_path, "q4", source=tmp_path / "tiny.gguf").path
    for engine, line in {
        "onnx": "its weights are for engine=native; run: replyline model prepare --precision int8",
        "torch": "torch computes fp32, .*, not q4; run: replyline model prepare",
    }.items():
        worker = {"engine": engine, "max_length": 64, "torch_device": "cpu"}
        with pytest.raises(SettingsError, match=line):
            load_model(Settings.model_validate({"model": {"dir": directory}, "worker": worker}))


def test_a_folder_whose_manifest_leaves_the_weights_out_is_refused(tmp_path: Path, tiny_source: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_source, kind="Q4_0")
    folder = prepare_model(tmp_path, "q4", source=tmp_path / "tiny.gguf")
    files = tuple(entry for entry in folder.manifest.files if entry.name != NATIVE)
    write_manifest(folder.path, msgspec.structs.replace(folder.manifest, files=files))
    with pytest.raises(ModelError, match=f"does not name {NATIVE}"):
        ModelFolder.open(folder.path)


def refused(target: Path, message: str, **asked: Path | None) -> None:
    with pytest.raises(ModelError, match=message) as caught:
        prepare_model(target / "models", "q4", **asked)
    assert "\n" not in str(caught.value)
    assert not [*(target / "models").glob("*")]


def test_an_adapter_is_not_merged(tmp_path: Path) -> None:
    refused(tmp_path, "no adapter can be merged; add --adapter none", adapter=DEMO_ADAPTER)


def test_a_folder_of_float_weights_has_no_four_bits(tmp_path: Path, tiny_source: Path) -> None:
    refused(tmp_path, r"'layers.0.self_attn.q_proj' is not in them; give such a file", source=tiny_source)


@pytest.mark.parametrize("kind", ["F32", "Q8_0"])
def test_a_gguf_of_other_numbers_is_refused(tmp_path: Path, tiny_source: Path, kind: str) -> None:
    write_gguf(tmp_path / "tiny.gguf", tiny_source, kind=kind)
    refused(tmp_path, "Q4_0 or Q4_1", source=tmp_path / "tiny.gguf")
