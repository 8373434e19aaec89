"""A GGUF file's model as a Hugging Face folder, for transformers: it reads GGUF by another package, and slowly."""

from pathlib import Path
from typing import Final

import msgspec
import numpy as np

from shared.model.folder import Architecture
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.sources.opening import open_source

_CONFIG: Final = "config.json"


def hugging_face_folder(source: Path, folder: Path) -> Path:
    """`source` itself where it is such a folder; else `folder`, written once, with the same numbers in float32.

    Raises `ModelError` where the source is damaged or unsupported.
    """
    if source.is_dir():
        return source
    if (folder / _CONFIG).exists():
        return folder
    opened = open_source(source)
    write_folder(opened.checkpoint, opened.stop_token_ids[0], folder)
    return folder


def write_folder(checkpoint: Checkpoint, stop_token_id: int, folder: Path) -> None:
    """`model.safetensors` and, last, `config.json`; no tokenizer, for tokens are what it is given."""
    _write_safetensors(checkpoint, folder / "model.safetensors")
    (folder / _CONFIG).write_bytes(msgspec.json.encode(_config(checkpoint.architecture, stop_token_id)))


def _config(a: Architecture, stop_token_id: int) -> dict[str, object]:
    """Of what a GGUF file may hold: a Llama without biases and without scaled rotations."""
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
        "eos_token_id": stop_token_id,
        "torch_dtype": "float32",
    }


def _write_safetensors(checkpoint: Checkpoint, path: Path) -> None:
    """The format: https://github.com/huggingface/safetensors#format."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, weight in checkpoint.weights.items():
        size = int(np.prod(weight.shape)) * np.dtype(np.float32).itemsize
        stored = f"{name}.weight" if name == "lm_head" else f"model.{name}.weight"
        header[stored] = {"dtype": "F32", "shape": weight.shape, "data_offsets": (at, at + size)}
        at += size
    encoded = msgspec.json.encode(header)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in checkpoint.weights:
            file.write(checkpoint.read(name).astype("<f4", copy=False).tobytes())
