"""A GGUF file's model as a Hugging Face folder, for transformers: it reads GGUF by another package, and slowly."""

from pathlib import Path
from typing import Final

import msgspec

from tests.support.models.fixtures import llama_config, safetensors
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.sources.opening import open_source

_CONFIG: Final = "config.json"


def hugging_face_folder(source: Path, folder: Path) -> Path:
    """Return `source` if it is such a folder; else `folder`, written once, with the same numbers in float32.

    Raises `ModelError` if the source is damaged or unsupported.
    """
    if source.is_dir():
        return source
    if not (folder / _CONFIG).exists():
        opened = open_source(source)
        write_folder(opened.checkpoint, opened.stop_token_ids[0], folder)
    return folder


def write_folder(checkpoint: Checkpoint, stop_token_id: int, folder: Path) -> None:
    """`model.safetensors` and, last, `config.json`, of what a GGUF file may hold: a Llama without biases and without
    scaled rotations; no tokenizer, for tokens are what it is given."""
    tensors = {
        f"{name}.weight" if name == "lm_head" else f"model.{name}.weight": checkpoint.read(name)
        for name in checkpoint.weights
    }
    (folder / "model.safetensors").write_bytes(safetensors(tensors))
    config = llama_config(checkpoint.architecture) | {"eos_token_id": stop_token_id, "torch_dtype": "float32"}
    (folder / _CONFIG).write_bytes(msgspec.json.encode(config))
