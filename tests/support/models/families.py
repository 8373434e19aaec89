"""Small random models of every family, the same bytes on every machine.

Weights come from PCG64's raw bits, whose stream numpy guarantees; its distributions may change with a version.
"""

import hashlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from shared.model.tokenizer import byte_level_definition
from tests.support.models.fixtures import safetensors
from workers.graph.sources.checkpoint import expected_shapes
from workers.graph.sources.config import ModelConfig, architecture_of

_COMMON = {
    "hidden_act": "silu",
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "vocab_size": 320,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10_000.0,
    "max_position_embeddings": 256,
    "tie_word_embeddings": False,
    "eos_token_id": 2,
}
_LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", **_COMMON}
_QWEN2 = {"architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", **_COMMON}
_QWEN3 = {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", **_COMMON}
# Short enough that all three kinds of rotation occur within the tokens that are compared.
_LLAMA3_SCALING = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
DENSE_CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {**_LLAMA, "num_attention_heads": 4},
    "llama, grouped, tied": {
        **_LLAMA,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
    },
    "llama 3.1 scaling, own head_dim": {
        **_LLAMA,
        "hidden_size": 96,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "rope_scaling": _LLAMA3_SCALING,
    },
    "llama, linear scaling, every bias": {
        **_LLAMA,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "attention_bias": True,
        "mlp_bias": True,
        "rope_scaling": {"type": "linear", "factor": 4.0},
    },
    "qwen2, tied": {
        **_QWEN2,
        "hidden_size": 224,
        "num_attention_heads": 7,
        "num_key_value_heads": 1,
        "tie_word_embeddings": True,
        "rope_theta": 1_000_000.0,
    },
    "qwen2": {**_QWEN2, "num_attention_heads": 4, "num_key_value_heads": 2, "rms_norm_eps": 1e-6},
    "qwen3, tied": {
        **_QWEN3,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "tie_word_embeddings": True,
        "rope_theta": 1_000_000.0,
    },
    "qwen3, biases": {
        **_QWEN3,
        "num_hidden_layers": 3,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "attention_bias": True,
    },
}

_QWEN2_MOE = {"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", **_COMMON}
_QWEN3_MOE = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", **_COMMON}
# Weights of the chosen experts that sum to 1 and that do not; layers without experts; every number of shared experts.
EXPERT_CONFIGS: dict[str, dict[str, Any]] = {
    "mixtral": {
        **_COMMON,
        "architectures": ["MixtralForCausalLM"],
        "model_type": "mixtral",
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
    "qwen2-moe": {
        **_QWEN2_MOE,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 160,
        "decoder_sparse_step": 2,
        "rms_norm_eps": 1e-6,
    },
    "qwen3-moe, tied": {
        **_QWEN3_MOE,
        "num_hidden_layers": 3,
        "num_attention_heads": 5,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_experts": 16,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "moe_intermediate_size": 32,
        "mlp_only_layers": [1],
        "tie_word_embeddings": True,
        "rope_theta": 1_000_000.0,
    },
    "olmoe": {
        **_COMMON,
        "architectures": ["OlmoeForCausalLM"],
        "model_type": "olmoe",
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "norm_topk_prob": False,
    },
}
FAMILY_CONFIGS = DENSE_CONFIGS | EXPERT_CONFIGS

# Shapes that transformers was not asked for: sizes of heads and groups, inputs that fill no whole block of 64, a
# vocabulary that fills no block of 32.
SHAPE_CONFIGS: dict[str, dict[str, Any]] = {
    "llama, head_dim 64": {**_LLAMA, "hidden_size": 192, "num_attention_heads": 3, "vocab_size": 333},
    "llama, head_dim 128, tied": {
        **_LLAMA,
        "hidden_size": 96,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 128,
        "tie_word_embeddings": True,
    },
    "qwen3, head_dim 80": {
        **_QWEN3,
        "hidden_size": 160,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 80,
        "intermediate_size": 224,
    },
    "llama, head_dim 48, every bias": {
        **_LLAMA,
        "num_attention_heads": 2,
        "head_dim": 48,
        "attention_bias": True,
        "mlp_bias": True,
    },
    "qwen2, a group of 14": {
        **_QWEN2,
        "hidden_size": 448,
        "intermediate_size": 480,
        "num_attention_heads": 14,
        "num_key_value_heads": 1,
        "vocab_size": 290,
    },
}


def family_tensors(config: dict[str, Any], seed: int) -> dict[str, np.ndarray]:
    """Random float32 weights under the names that transformers gives them."""
    shapes = expected_shapes(architecture_of(msgspec.convert(config, ModelConfig)))
    tensors = {}
    for number, (name, shape) in enumerate(shapes.items()):
        bits = np.random.PCG64(1_000 * seed + number).random_raw(int(np.prod(shape))) >> np.uint64(40)
        noise = (bits.astype(np.float32) / np.float32(2**23) - 1).reshape(shape)
        if len(shape) == 2:
            # A router with scores far apart: rounding seldom changes which experts are chosen.
            weight = noise * np.float32((9 if name.endswith("mlp.gate") else 3) * shape[1] ** -0.5)
        else:
            weight = noise / 2 if name.endswith(".bias") else 1 + noise / 4
        stem = "lm_head" if name == "lm_head" else f"model.{name}"
        if config["model_type"] == "mixtral":
            stem = _mixtral_name(stem)
        tensors[stem if stem.endswith(".bias") else f"{stem}.weight"] = weight
    return tensors


def _mixtral_name(stem: str) -> str:
    if ".experts." in stem:
        for part, name in {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}.items():
            stem = stem.replace(part, name)
    return stem.replace(".mlp.", ".block_sparse_moe.")


def weights_sha256(tensors: dict[str, np.ndarray]) -> str:
    return hashlib.sha256(b"".join(np.ascontiguousarray(tensor).tobytes() for tensor in tensors.values())).hexdigest()


def write_family(folder: Path, config: dict[str, Any], tensors: dict[str, np.ndarray], *, shards: int = 1) -> None:
    """Write a model as Hugging Face does, its weights in one file or in `shards` files and an index."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    (folder / "tokenizer.json").write_bytes(byte_level_definition())
    if shards == 1:
        (folder / "model.safetensors").write_bytes(safetensors(tensors))
        return
    files = [f"model-{number + 1:05}-of-{shards:05}.safetensors" for number in range(shards)]
    weight_map = {name: files[number % shards] for number, name in enumerate(tensors)}
    for file in files:
        part = {name: tensor for name, tensor in tensors.items() if weight_map[name] == file}
        (folder / file).write_bytes(safetensors(part))
    (folder / "model.safetensors.index.json").write_bytes(msgspec.json.encode({"weight_map": weight_map}))
