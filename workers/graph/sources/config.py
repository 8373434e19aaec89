"""Reads `config.json` of a Hugging Face folder as an `Architecture`, or says which of its fields is not supported."""

from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from shared.errors import ModelError
from shared.model.folder import Architecture, Experts, LinearScaling, Llama3Scaling

_LLAMA: Final = "LlamaForCausalLM"
_QWEN2: Final = "Qwen2ForCausalLM"
_QWEN3: Final = "Qwen3ForCausalLM"
_MIXTRAL: Final = "MixtralForCausalLM"
_QWEN2_MOE: Final = "Qwen2MoeForCausalLM"
_QWEN3_MOE: Final = "Qwen3MoeForCausalLM"
_OLMOE: Final = "OlmoeForCausalLM"
FAMILIES: Final = (_LLAMA, _QWEN2, _QWEN3, _MIXTRAL, _QWEN2_MOE, _QWEN3_MOE, _OLMOE)
# What transformers takes where the configuration names none.
_QWEN3_HEAD_DIM: Final = 128
_ROPE_THETA: Final = 10_000.0


class ModelConfig(Struct, frozen=True, kw_only=True):
    """The fields that decide what is computed."""

    architectures: list[str]
    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    vocab_size: int
    rms_norm_eps: float
    max_position_embeddings: int
    num_key_value_heads: int | None = None
    head_dim: int | None = None
    hidden_act: str = "silu"
    attention_bias: bool = False
    mlp_bias: bool = False
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    partial_rotary_factor: float | None = None
    use_sliding_window: bool | None = None
    layer_types: list[str] | None = None
    quantization_config: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    eos_token_id: int | list[int] | None = None
    qkv_bias: bool = True
    sliding_window: int | None = None
    clip_qkv: float | None = None
    num_local_experts: int | None = None
    num_experts: int | None = None
    num_experts_per_tok: int | None = None
    norm_topk_prob: bool = False
    moe_intermediate_size: int | None = None
    shared_expert_intermediate_size: int | None = None
    decoder_sparse_step: int = 1
    mlp_only_layers: list[int] | None = None

    @property
    def stop_token_ids(self) -> list[int]:
        """The tokens that end a text."""
        if isinstance(self.eos_token_id, list):
            return self.eos_token_id
        return [] if self.eos_token_id is None else [self.eos_token_id]


def read_config(folder: Path) -> ModelConfig:
    """Read `config.json`. Raises `ModelError` if it is missing or describes no decoder of this kind."""
    path = folder / "config.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=ModelConfig)
    except OSError as error:
        raise ModelError(f"cannot read {path} ({error.strerror}); give a model's folder") from error
    except msgspec.MsgspecError as error:
        raise ModelError(f"{path} describes no Llama or Qwen model ({error})") from error


def architecture_of(config: ModelConfig) -> Architecture:
    """Return the architecture that `config` describes. Raises `ModelError` with the field and its value if that is
    not supported."""
    _refuse_unsupported(config)
    family = config.architectures[0]
    rope = config.rope_parameters or config.rope_scaling or {}
    return Architecture(
        num_layers=config.num_hidden_layers,
        num_heads=config.num_attention_heads,
        num_kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=_head_dim(config),
        hidden_size=config.hidden_size,
        intermediate_size=config.intermediate_size,
        vocab_size=config.vocab_size,
        max_positions=config.max_position_embeddings,
        rope_theta=_number(rope, "rope_theta", config.rope_theta or _ROPE_THETA),
        rope_scaling=_rope_scaling(rope),
        norm_epsilon=config.rms_norm_eps,
        tied_embedding=config.tie_word_embeddings,
        qkv_bias=family == _QWEN2 or (family == _QWEN2_MOE and config.qkv_bias) or config.attention_bias,
        output_bias=family not in {_QWEN2, _QWEN2_MOE} and config.attention_bias,
        mlp_bias=family == _LLAMA and config.mlp_bias,
        query_key_norm=family in {_QWEN3, _QWEN3_MOE, _OLMOE},
        joint_norm=family == _OLMOE,
        experts=_experts(config),
    )


def _experts(config: ModelConfig) -> Experts | None:
    family = config.architectures[0]
    if family not in {_MIXTRAL, _QWEN2_MOE, _QWEN3_MOE, _OLMOE}:
        return None
    qwen = family in {_QWEN2_MOE, _QWEN3_MOE}
    sizes = {
        "num_local_experts" if family == _MIXTRAL else "num_experts": (config.num_local_experts or config.num_experts),
        "num_experts_per_tok": config.num_experts_per_tok,
        "moe_intermediate_size" if qwen else "intermediate_size": (
            config.moe_intermediate_size if qwen else config.intermediate_size
        ),
        "decoder_sparse_step": config.decoder_sparse_step,
    }
    if family == _QWEN2_MOE:
        sizes["shared_expert_intermediate_size"] = config.shared_expert_intermediate_size
    for name, size in sizes.items():
        if not size or size < 0:
            raise _unsupported(name, size, "it is a number above 0")
    count, chosen, width, step, *shared = (size or 0 for size in sizes.values())
    if chosen > count:
        raise _unsupported("num_experts_per_tok", chosen, f"there are {count} experts")
    layers = range(config.num_hidden_layers) if qwen else ()
    dense = [layer for layer in layers if layer in (config.mlp_only_layers or ()) or (layer + 1) % step]
    return Experts(
        count=count,
        chosen=chosen,
        width=width,
        normalized=family == _MIXTRAL or config.norm_topk_prob,
        shared_width=sum(shared),
        dense_layers=tuple(dense),
    )


def _refuse_unsupported(config: ModelConfig) -> None:
    if len(config.architectures) != 1 or config.architectures[0] not in FAMILIES:
        raise _unsupported("architectures", config.architectures, f"use one of {', '.join(FAMILIES)}")
    if config.hidden_act != "silu":
        raise _unsupported("hidden_act", config.hidden_act, "only 'silu' is")
    if config.use_sliding_window:
        raise _unsupported("use_sliding_window", config.use_sliding_window, "use a model with full attention")
    if config.architectures[0] == _MIXTRAL and config.sliding_window is not None:
        raise _unsupported("sliding_window", config.sliding_window, "use a model with full attention")
    if config.clip_qkv is not None:
        raise _unsupported("clip_qkv", config.clip_qkv, "use a model without it")
    if set(config.layer_types or ()) - {"full_attention"}:
        raise _unsupported("layer_types", sorted(set(config.layer_types or ())), "only 'full_attention' is")
    if config.partial_rotary_factor not in {None, 1}:
        raise _unsupported("partial_rotary_factor", config.partial_rotary_factor, "only 1 is")
    if config.quantization_config is not None:
        method = config.quantization_config.get("quant_method")
        raise _unsupported("quantization_config", method, "use the weights in bf16, fp16 or fp32")
    key_value_heads = config.num_key_value_heads or config.num_attention_heads
    if config.num_attention_heads % key_value_heads:
        raise _unsupported("num_key_value_heads", key_value_heads, f"{config.num_attention_heads} heads share them")


def _head_dim(config: ModelConfig) -> int:
    if config.head_dim is not None:
        return config.head_dim
    if config.architectures == [_QWEN3]:
        return _QWEN3_HEAD_DIM
    return config.hidden_size // config.num_attention_heads


def _rope_scaling(rope: dict[str, Any]) -> LinearScaling | Llama3Scaling | None:
    # transformers 5 writes `rope_parameters`, those before it `rope_theta` and `rope_scaling`.
    kind = rope.get("rope_type", rope.get("type", "default"))
    if _number(rope, "partial_rotary_factor", 1) != 1:
        raise _unsupported("partial_rotary_factor", rope["partial_rotary_factor"], "only 1 is")
    if kind == "default":
        return None
    if kind == "linear":
        return LinearScaling(factor=_number(rope, "factor"))
    if kind == "llama3":
        return Llama3Scaling(
            factor=_number(rope, "factor"),
            low_freq_factor=_number(rope, "low_freq_factor"),
            high_freq_factor=_number(rope, "high_freq_factor"),
            original_positions=int(_number(rope, "original_max_position_embeddings")),
        )
    raise _unsupported("rope_type", kind, "only 'default', 'linear' and 'llama3' are")


def _number(rope: dict[str, Any], key: str, default: float | None = None) -> float:
    value = rope.get(key, default)
    if not isinstance(value, int | float) or value <= 0:
        raise _unsupported(f"the rotary embedding's {key}", value, "it is a number above 0")
    return float(value)


def _unsupported(field: str, value: object, remedy: str) -> ModelError:
    return ModelError(f"config.json: {field} {value!r} is not supported; {remedy}")
