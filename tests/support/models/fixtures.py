"""Models for tests: the real one, prepared once, and a tiny random one that is written in milliseconds."""

import os
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import Architecture, ModelFolder
from shared.model.tokenizer import byte_level_definition
from workers.graph.sources.checkpoint import expected_shapes

TINY = Architecture(
    num_layers=2,
    num_heads=4,
    num_kv_heads=2,
    head_dim=16,
    hidden_size=64,
    intermediate_size=96,
    vocab_size=320,
    max_positions=256,
    rope_theta=10_000.0,
    norm_epsilon=1e-5,
    tied_embedding=True,
)


@pytest.fixture(scope="session")
def models_dir() -> Path:
    """Return the folder of prepared models, which is kept between runs: `REPLYLINE_MODELS_DIR`, else `.models` in the
    repository."""
    configured = os.environ.get("REPLYLINE_MODELS_DIR")
    return Path(configured) if configured else Path(__file__).parents[3] / ".models"


@pytest.fixture(scope="session")
def model_folder(models_dir: Path) -> ModelFolder:
    """SmolLM2-135M-Instruct in int8, prepared at first use (half a minute, 300 MB)."""
    return prepare_model(models_dir, "int8")


@pytest.fixture(scope="session")
def fp32_model_folder(models_dir: Path) -> ModelFolder:
    """SmolLM2-135M-Instruct in fp32, prepared at first use (a few seconds, 540 MB)."""
    return prepare_model(models_dir, "fp32")


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder of a random two-layer Llama over the byte-level vocabulary."""
    folder = tmp_path_factory.mktemp("source") / "tiny"
    write_llama(folder, TINY, seed=7)
    return folder


@pytest.fixture(scope="session")
def slots_folder(tmp_path_factory: pytest.TempPathFactory, tiny_source: Path) -> ModelFolder:
    """The tiny model for TensorRT in fp16; a slot holds 96 tokens."""
    return prepare_model(tmp_path_factory.mktemp("slots"), "fp16", source=tiny_source, max_length=96)


def write_llama(folder: Path, architecture: Architecture, *, seed: int, dtype: str = "F32") -> None:
    """Write a random Llama as Hugging Face does: `config.json`, `tokenizer.json`, `model.safetensors`.

    Rows of the embedding are long, so that logits lie far apart and greedy tokens do not hang on rounding.
    """
    random = np.random.default_rng(seed)
    tensors = {}
    for name, shape in expected_shapes(architecture).items():
        scale = shape[-1] ** -0.5 * (3.0 if len(shape) == 2 else 1.0)
        noise = random.standard_normal(shape, np.float32)
        tensors[f"model.{name}.weight"] = noise * np.float32(scale) if len(shape) == 2 else 1 + noise / 10
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(safetensors(tensors, dtype))
    (folder / "tokenizer.json").write_bytes(byte_level_definition())
    (folder / "config.json").write_bytes(msgspec.json.encode(llama_config(architecture)))


def llama_config(architecture: Architecture) -> dict[str, object]:
    """`config.json` of a LlamaForCausalLM with these numbers."""
    a = architecture
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": a.hidden_size,
        "intermediate_size": a.intermediate_size,
        "num_hidden_layers": a.num_layers,
        "num_attention_heads": a.num_heads,
        "num_key_value_heads": a.num_kv_heads,
        "head_dim": a.head_dim,
        "vocab_size": a.vocab_size,
        "rms_norm_eps": a.norm_epsilon,
        "rope_theta": a.rope_theta,
        "max_position_embeddings": a.max_positions,
        "tie_word_embeddings": a.tied_embedding,
        "eos_token_id": 2,
    }


def safetensors(tensors: dict[str, np.ndarray], dtype: str = "F32") -> bytes:
    """The bytes of a safetensors file of float32 tensors, stored as F32, F16 or BF16 (cut off, not rounded)."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    body = bytearray()
    for name, tensor in tensors.items():
        single = np.ascontiguousarray(tensor, np.float32)
        if dtype == "BF16":
            data = (single.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        else:
            data = single.astype({"F32": np.float32, "F16": np.float16}[dtype]).tobytes()
        header[name] = {"dtype": dtype, "shape": tensor.shape, "data_offsets": (len(body), len(body) + len(data))}
        body += data
    encoded = msgspec.json.encode(header)
    return len(encoded).to_bytes(8, "little") + encoded + bytes(body)


# --- a tiny model as `replyline model prepare` leaves it, and copies of it to spoil


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    base = tmp_path_factory.mktemp("prepared")
    write_llama(base / "tiny", TINY, seed=3)
    return prepare_model(base / "models", "fp32", source=base / "tiny").path


@pytest.fixture
def folder(prepared: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(prepared, tmp_path / "model"))


def flip(path: Path) -> None:
    """One bit, the size as it was."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
