"""Write a decoder as a Hugging Face folder, which `model prepare`, `optimize distill` and transformers read."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from ops.model.prepare import put_in_place, workshop_of
from shared.errors import ModelError
from shared.model.folder import TOKENIZER, Architecture, LinearScaling, Llama3Scaling
from workers.graph.sources.checkpoint import Checkpoint

_WEIGHTS: Final = "model.safetensors"
_ALIGNED: Final = 8  # bytes, as the format asks of the header
REPORT: Final = "pruned.json"


def write_folder(
    out: Path, checkpoint: Checkpoint, tokenizer: bytes, stop_token_ids: Sequence[int], report: object
) -> None:
    """Write `out` atomically, replacing an existing folder; weights as float32.

    Args:
        out: the folder.
        checkpoint: the decoder.
        tokenizer: the content of `tokenizer.json`.
        stop_token_ids: the tokens that end a text.
        report: what was pruned and what that costs, for `pruned.json`.

    Raises:
        ModelError: the disk has too little room, or `config.json` has no words for the decoder.
    """
    config = config_of(checkpoint.architecture, stop_token_ids)
    out.parent.mkdir(parents=True, exist_ok=True)
    needed = sum(4 * _size(weight.shape) for weight in checkpoint.weights.values())
    if (free := shutil.disk_usage(out.parent).free) < needed:
        raise ModelError(f"{out.parent} has {free / 1e6:.0f} MB free, the model takes {needed / 1e6:.0f} MB")
    with workshop_of(out) as workshop:
        _write_weights(workshop.path / _WEIGHTS, checkpoint)
        (workshop.path / "config.json").write_bytes(_pretty(config))
        (workshop.path / TOKENIZER).write_bytes(tokenizer)
        (workshop.path / REPORT).write_bytes(_pretty(report))
        put_in_place(workshop, out)


def config_of(architecture: Architecture, stop_token_ids: Sequence[int]) -> dict[str, Any]:
    """Return `config.json`. Raises `ModelError` for rotary factors that only a GGUF file has."""
    a = architecture
    if a.query_key_norm:
        family, kind = "Qwen3ForCausalLM", "qwen3"
    elif a.qkv_bias and not a.output_bias:
        family, kind = "Qwen2ForCausalLM", "qwen2"
    else:
        family, kind = "LlamaForCausalLM", "llama"
    return {
        "architectures": [family],
        "model_type": kind,
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
        "rope_scaling": _rope_scaling(a),
        "max_position_embeddings": a.max_positions,
        "tie_word_embeddings": a.tied_embedding,
        "attention_bias": a.output_bias,
        "mlp_bias": a.mlp_bias,
        "eos_token_id": list(stop_token_ids),
        "torch_dtype": "float32",
    }


def _rope_scaling(architecture: Architecture) -> dict[str, Any] | None:
    match architecture.rope_scaling:
        case None:
            return None
        case LinearScaling(factor=factor):
            return {"rope_type": "linear", "factor": factor}
        case Llama3Scaling() as scaling:
            return {
                "rope_type": "llama3",
                "factor": scaling.factor,
                "low_freq_factor": scaling.low_freq_factor,
                "high_freq_factor": scaling.high_freq_factor,
                "original_max_position_embeddings": int(scaling.original_positions),
            }
        case _:
            raise ModelError("the GGUF file's rotary factors cannot be written to config.json; give the model's folder")


def _write_weights(path: Path, checkpoint: Checkpoint) -> None:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, weight in checkpoint.weights.items():
        size = 4 * _size(weight.shape)
        header[_name(name)] = {"dtype": "F32", "shape": list(weight.shape), "data_offsets": [at, at := at + size]}
    encoded = msgspec.json.encode(header)
    encoded += b" " * (-len(encoded) % _ALIGNED)
    with path.open("wb") as file:
        file.write(len(encoded).to_bytes(8, "little") + encoded)
        for name in checkpoint.weights:
            file.write(checkpoint.read(name).astype("<f4").tobytes())


def _name(canonical: str) -> str:
    """Return the name of Hugging Face's checkpoints."""
    name = canonical if canonical.endswith(".bias") else f"{canonical}.weight"
    return name if canonical == "lm_head" else f"model.{name}"


def _size(shape: Sequence[int]) -> int:
    size = 1
    for each in shape:
        size *= each
    return size


def _pretty(value: object) -> bytes:
    return msgspec.json.format(msgspec.json.encode(value), indent=2) + b"\n"
