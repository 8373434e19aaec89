"""A configuration is read as transformers reads it, or the field that is not supported is named with its value."""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from shared.errors import ModelError
from shared.model.folder import Architecture, LinearScaling, Llama3Scaling
from tests.support.models.fixtures import TINY, llama_config
from workers.graph.rotary import frequencies
from workers.graph.sources.config import ModelConfig, architecture_of, read_config

LLAMA3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def architecture(**changes: Any) -> Architecture:
    return architecture_of(msgspec.convert({**llama_config(TINY), **changes}, ModelConfig))


MIXTRAL = {"architectures": ["MixtralForCausalLM"], "num_local_experts": 8, "num_experts_per_tok": 2}


def test_what_a_configuration_leaves_out_is_as_in_transformers() -> None:
    plain = architecture(num_key_value_heads=None, head_dim=None, rope_theta=None)
    assert (plain.num_kv_heads, plain.head_dim, plain.rope_theta) == (4, 16, 10_000.0)
    assert plain.rope_scaling is None
    assert not plain.qkv_bias
    assert architecture(architectures=["Qwen3ForCausalLM"], head_dim=None).head_dim == 128


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"architectures": ["LlamaForCausalLM"], "attention_bias": True}, (True, True, False, False)),
        ({"architectures": ["LlamaForCausalLM"], "mlp_bias": True}, (False, False, True, False)),
        ({"architectures": ["Qwen2ForCausalLM"]}, (True, False, False, False)),
        ({"architectures": ["Qwen3ForCausalLM"]}, (False, False, False, True)),
        ({"architectures": ["Qwen3ForCausalLM"], "attention_bias": True}, (True, True, False, True)),
    ],
)
def test_each_family_has_its_own_biases_and_norms(changes: dict[str, Any], expected: tuple[bool, ...]) -> None:
    a = architecture(**changes)
    assert (a.qkv_bias, a.output_bias, a.mlp_bias, a.query_key_norm) == expected


@pytest.mark.parametrize(
    "changes",
    [
        {"rope_theta": 500_000.0, "rope_scaling": {"rope_type": "llama3", **LLAMA3}},
        {"rope_theta": None, "rope_parameters": {"rope_type": "llama3", "rope_theta": 500_000.0, **LLAMA3}},
    ],
    ids=["transformers 4", "transformers 5"],
)
def test_rotary_parameters_are_read_in_both_forms(changes: dict[str, Any]) -> None:
    a = architecture(**changes)
    assert a.rope_theta == 500_000.0
    assert a.rope_scaling == Llama3Scaling(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_positions=8192
    )
    assert architecture(rope_scaling={"type": "linear", "factor": 2.0}).rope_scaling == LinearScaling(factor=2.0)


def test_llama3_scaling_keeps_fast_rotations_and_stretches_slow_ones() -> None:
    scaled = architecture(rope_theta=500_000.0, head_dim=128, rope_scaling={"rope_type": "llama3", **LLAMA3})
    plain = msgspec.structs.replace(scaled, rope_scaling=None)
    ratio = frequencies(plain) / frequencies(scaled)
    assert (np.diff(ratio) >= 0).all()
    turns = frequencies(plain) * 8192 / (2 * np.pi)
    assert (ratio[turns > 4] == 1).all()
    np.testing.assert_allclose(ratio[turns < 1], 8, rtol=1e-12)
    assert 0 < ((turns > 1) & (turns < 4)).sum() < 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architectures": ["GptOssForCausalLM"]}, r"architectures \['GptOssForCausalLM'\]"),
        ({"clip_qkv": 8.0}, "clip_qkv 8.0"),
        (MIXTRAL | {"num_local_experts": None}, "num_local_experts None"),
        (MIXTRAL | {"num_experts_per_tok": 9}, "num_experts_per_tok 9"),
        (MIXTRAL | {"sliding_window": 4096}, "sliding_window 4096"),
        ({"architectures": []}, r"architectures \[\]"),
        ({"hidden_act": "gelu"}, "hidden_act 'gelu'"),
        ({"use_sliding_window": True}, "use_sliding_window True"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, r"layer_types \[.*'sliding_attention'\]"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}, "rope_type 'yarn'"),
        ({"rope_scaling": {"type": "longrope"}}, "rope_type 'longrope'"),
        ({"rope_scaling": {"type": "dynamic", "factor": 2.0}}, "rope_type 'dynamic'"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "low_freq_factor None"),
        ({"rope_scaling": {"rope_type": "linear", "factor": "two"}}, "factor 'two'"),
        ({"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor 0"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor 0.5"),
        ({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}}, "partial_rotary_factor 0.5"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantization_config 'awq'"),
        ({"num_key_value_heads": 3}, "num_key_value_heads 3"),
    ],
)
def test_what_is_not_supported_is_named_with_its_value(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=f"^config.json: .*{message} is not supported; ") as caught:
        architecture(**changes)
    assert "\n" not in str(caught.value)


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    config = llama_config(TINY)
    del config["rms_norm_eps"]
    (tmp_path / "config.json").write_bytes(msgspec.json.encode(config))
    with pytest.raises(ModelError, match=r"describes no Llama or Qwen model .*rms_norm_eps"):
        read_config(tmp_path)
