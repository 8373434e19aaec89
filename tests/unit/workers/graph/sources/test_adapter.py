"""Adapters in PEFT's files: merged as they are meant to be, and refused in one line where they are not whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ops.model.prepare import DEMO_ADAPTER, DEMO_MODEL, default_source, prepare_model
from ops.model.terminal import languages_of
from shared.errors import ModelError, SettingsError
from shared.model.folder import GRAPH_DATA, sha256_of
from tests.support.models.fixtures import TINY, safetensors
from workers.graph.sources.adapter import CONFIG, LORA_MODULES, MANIFEST, TENSORS, Adapter, AdapterManifest
from workers.graph.sources.checkpoint import expected_shapes
from workers.graph.sources.opening import open_source, source_sha256

RANK = 3
QUERY = "layers.1.self_attn.q_proj"
Tensors = dict[str, np.ndarray]


def tensors_for(*modules: str, layers: int = 2, prefix: str = "base_model.model.model.") -> Tensors:
    random = np.random.default_rng(1)
    shapes = expected_shapes(TINY)
    made: Tensors = {}
    for layer in range(layers):
        for module in modules:
            name = f"layers.{layer}.{LORA_MODULES[module]}"
            num_out, num_in = shapes[name.replace(f"layers.{layer}", "layers.0")]
            made[f"{prefix}{name}.lora_A.weight"] = random.standard_normal((RANK, num_in)).astype(np.float32)
            made[f"{prefix}{name}.lora_B.weight"] = random.standard_normal((num_out, RANK)).astype(np.float32)
    return made


def write(folder: Path, tensors: Tensors | None = None, **config: Any) -> Path:
    """As PEFT's `save_pretrained` does: no manifest."""
    folder.mkdir(exist_ok=True)
    made = {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, "target_modules": ["q_proj", "v_proj"], "bias": "none"}
    (folder / CONFIG).write_bytes(msgspec.json.encode(made | config))
    (folder / TENSORS).write_bytes(safetensors(tensors_for("q_proj", "v_proj") if tensors is None else tensors))
    return folder


def test_a_matrix_gets_the_scaled_product_and_the_others_stay(tiny_source: Path, tmp_path: Path) -> None:
    """`W + alpha / r * B @ A`."""
    tensors = tensors_for("q_proj", "v_proj")
    plain = open_source(tiny_source).checkpoint
    merged = Adapter.open(write(tmp_path / "a", tensors)).merged(plain)
    down, up = (tensors[f"base_model.model.model.{QUERY}.lora_{part}.weight"] for part in "AB")
    np.testing.assert_allclose(merged.read(QUERY), plain.read(QUERY) + 2 * (up @ down), rtol=1e-5, atol=1e-5)
    for name in plain.weights.keys() - {f"layers.{i}.self_attn.{part}_proj" for i in (0, 1) for part in "qv"}:
        assert np.array_equal(merged.read(name), plain.read(name)), name


@pytest.mark.parametrize("prefix", ["base_model.model.model.", "base_model.model.", "model.", ""])
def test_names_are_read_with_and_without_peft_s_prefixes(tmp_path: Path, prefix: str) -> None:
    assert set(Adapter.open(write(tmp_path / "a", tensors_for("o_proj", prefix=prefix))).down) == {
        "layers.0.self_attn.o_proj",
        "layers.1.self_attn.o_proj",
    }


def test_a_prepared_folder_tells_of_its_adapter_and_is_made_anew_for_another(tiny_source: Path, tmp_path: Path) -> None:
    plain = prepare_model(tmp_path, "int8", source=tiny_source)
    first = prepare_model(tmp_path, "int8", source=tiny_source, adapter=write(tmp_path / "shop"))
    assert (first.manifest.name, first.path.name) == ("tiny-shop", "tiny-shop-int8")
    assert first.manifest.adapter is not None
    assert (first.manifest.adapter.name, first.manifest.adapter.sha256) == (
        "shop",
        Adapter.open(tmp_path / "shop").sha256,
    )
    assert first.read(GRAPH_DATA) != plain.read(GRAPH_DATA)
    again = prepare_model(tmp_path, "int8", source=tiny_source, adapter=tmp_path / "shop")
    assert again.manifest == first.manifest
    write(tmp_path / "shop", lora_alpha=9)
    other = prepare_model(tmp_path, "int8", source=tiny_source, adapter=tmp_path / "shop")
    assert other.manifest.revision != first.manifest.revision
    assert plain.manifest.adapter is None


def test_a_folder_tells_the_languages_that_its_model_answers_in(tiny_source: Path, tmp_path: Path) -> None:
    """None if unknown; a folder with other languages is prepared again."""
    assert prepare_model(tmp_path, "int8", source=tiny_source).manifest.languages is None
    assert prepare_model(tmp_path, "int8", source=tiny_source, languages=("en",)).manifest.languages == ("en",)
    assert prepare_model(tmp_path, "int8", source=tiny_source).manifest.languages is None


@pytest.mark.parametrize(
    ("option", "languages"), [(None, None), ("en", ("en",)), ("zh, en", ("en", "zh")), ("en,zh", ("en", "zh"))]
)
def test_languages_are_read_in_any_order(option: str | None, languages: tuple[str, ...] | None) -> None:
    assert languages_of(option) == languages


@pytest.mark.parametrize("option", ["de", "en,de", "", "en;zh"])
def test_other_languages_are_refused_by_name(option: str) -> None:
    with pytest.raises(SettingsError, match="write some of en,zh"):
        languages_of(option)


def test_the_demo_s_adapter_is_whole_and_of_the_default_model() -> None:
    """8 MB at most, named in its manifest, of the very GGUF file that is pinned."""
    adapter = Adapter.open(DEMO_ADAPTER)
    assert adapter.manifest is not None
    assert adapter.name == DEMO_MODEL
    assert adapter.manifest.base_sha256 == sha256_of(default_source())
    assert (DEMO_ADAPTER / TENSORS).stat().st_size <= 8_000_000
    assert len(adapter.down) == 30 * len(LORA_MODULES)


CONFIGS = [
    ({"peft_type": "IA3"}, "peft_type 'IA3' is not supported"),
    ({"use_rslora": True}, "use_rslora=True is not supported"),
    ({"use_dora": True}, "use_dora=True is not supported"),
    ({"bias": "all"}, "bias='all' is not supported"),
    ({"modules_to_save": ["lm_head"]}, r"modules_to_save=\['lm_head'\] is not supported"),
    ({"rank_pattern": {"q_proj": 2}}, "rank_pattern=.* is not supported"),
    ({"r": 0}, "r=0, lora_alpha=6 are no rank and scale"),
    ({"r": "many"}, "adapter_config.json is damaged"),
    ({"r": 4}, "which is not of rank 4"),
    ({"target_modules": ["q_proj", "embed_tokens"]}, "target module 'embed_tokens' is not supported"),
]


@pytest.mark.parametrize(("config", "message"), CONFIGS)
def test_a_configuration_that_means_another_sum_is_refused(
    tmp_path: Path, config: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message) as refused:
        Adapter.open(write(tmp_path / "a", **config))
    assert "\n" not in str(refused.value)


def without_a_partner(tensors: Tensors) -> None:
    del tensors[f"base_model.model.model.{QUERY}.lora_B.weight"]


def not_finite(tensors: Tensors) -> None:
    tensors[f"base_model.model.model.{QUERY}.lora_A.weight"][1, 2] = np.nan


def of_the_embedding(tensors: Tensors) -> None:
    tensors["base_model.model.model.embed_tokens.lora_A.weight"] = np.zeros((RANK, 8), np.float32)


def no_matrix(tensors: Tensors) -> None:
    tensors[f"base_model.model.model.{QUERY}.lora_A.weight"] = np.zeros(RANK, np.float32)


SPOILED = [
    (without_a_partner, f"{QUERY} has only one of lora_A and lora_B"),
    (not_finite, "holds values that are not finite"),
    (of_the_embedding, "belongs to no matrix that an adapter may change"),
    (no_matrix, "which is not of rank 3"),
    (Tensors.clear, "holds no matrix of LoRA"),
]


@pytest.mark.parametrize(("spoil", "message"), SPOILED)
def test_tensors_that_make_no_adapter_are_refused(
    tmp_path: Path, spoil: Callable[[Tensors], None], message: str
) -> None:
    tensors = tensors_for("q_proj", "v_proj")
    spoil(tensors)
    with pytest.raises(ModelError, match=message):
        Adapter.open(write(tmp_path / "a", tensors))


def test_a_file_that_was_cut_off_or_is_not_there_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a")
    (folder / TENSORS).write_bytes((folder / TENSORS).read_bytes()[:-5])
    with pytest.raises(ModelError, match="is no whole safetensors file"):
        Adapter.open(folder)
    (folder / TENSORS).unlink()
    with pytest.raises(ModelError, match=f"has no {TENSORS}"):
        Adapter.open(folder)
    with pytest.raises(ModelError, match=r"cannot read .*adapter_config.json"):
        Adapter.open(tmp_path)


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            tensors_for("q_proj", layers=3),
            "changes layers.2.self_attn.q_proj, which this model of 2 layers does not have",
        ),
        (
            {
                f"{QUERY}.lora_A.weight": np.zeros((RANK, 32), np.float32),
                f"{QUERY}.lora_B.weight": np.zeros((64, RANK), np.float32),
            },
            "is of another model: its layers.1.self_attn.q_proj is for a matrix 64 × 32, this model's is 64 × 64",
        ),
    ],
)
def test_an_adapter_of_a_model_with_other_matrices_is_refused(
    tiny_source: Path, tmp_path: Path, tensors: Tensors, message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        prepare_model(tmp_path, "fp32", source=tiny_source, adapter=write(tmp_path / "a", tensors))
    assert not list(tmp_path.glob("tiny-*"))


def made_here(folder: Path, base_sha256: str) -> Path:
    """An adapter with the manifest that `replyline optimize distill` adds."""
    write(folder, tensors_for("q_proj"))
    manifest = AdapterManifest(
        name="tiny-shop",
        base="tiny",
        base_sha256=base_sha256,
        files={file: sha256_of(folder / file) for file in (CONFIG, TENSORS)},
        made_by={"seed": "1"},
        data_sha256="d",
        seed=1,
        steps=5,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.encode(manifest))
    return folder


def test_an_adapter_with_a_manifest_fits_its_own_model_alone(tiny_source: Path, tmp_path: Path) -> None:
    own = made_here(tmp_path / "own", source_sha256(tiny_source))
    assert prepare_model(tmp_path, "fp32", source=tiny_source, adapter=own).manifest.name == "tiny-shop"
    other = made_here(tmp_path / "other", "0" * 64)
    with pytest.raises(ModelError, match=r"was made for tiny \(sha256 000000000000…\), this model is sha256"):
        prepare_model(tmp_path, "fp32", source=tiny_source, adapter=other)


@pytest.mark.parametrize("name", [CONFIG, TENSORS])
def test_a_file_that_is_not_the_manifest_s_is_refused(tmp_path: Path, name: str) -> None:
    folder = made_here(tmp_path / "a", "0" * 64)
    (folder / name).write_bytes((folder / name).read_bytes() + b" ")
    with pytest.raises(ModelError, match=f"{name} is not the file whose sha256 {MANIFEST} tells"):
        Adapter.open(folder)
