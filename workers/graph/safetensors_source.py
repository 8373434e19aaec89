"""Reads a Hugging Face folder (`config.json`, `*.safetensors`) as a `Checkpoint`.

The format is a little-endian 64-bit header length, a JSON header and raw bytes: the README of
safetensors, "Format".
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from shared.errors import ModelError
from shared.model_folder import Architecture
from workers.graph.checkpoint import Checkpoint, Float32Array, Weight

_DTYPES: Final[Mapping[str, str]] = {"F32": "<f4", "F16": "<f2", "BF16": "<u2"}
_LENGTH_BYTES: Final = 8


class LlamaConfig(Struct, frozen=True, kw_only=True):
    """The fields of `config.json` that decide what is computed."""

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
    rope_theta: float | None = None
    rope_scaling: dict[str, Any] | None = None
    rope_parameters: dict[str, Any] | None = None
    tie_word_embeddings: bool = False
    eos_token_id: int | list[int] | None = None


class _TensorHeader(Struct, frozen=True, kw_only=True):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class SafetensorsSource:
    """A folder as Hugging Face's `save_pretrained` writes it."""

    path: Path
    config: LlamaConfig

    @classmethod
    def open(cls, path: Path) -> Self:
        """Read `config.json`. Raises `ModelError` where it is missing or describes no plain Llama."""
        try:
            config = msgspec.json.decode((path / "config.json").read_bytes(), type=LlamaConfig)
        except OSError as error:
            raise ModelError(f"cannot read {path}/config.json ({error.strerror}); give a model's folder") from error
        except msgspec.MsgspecError as error:
            raise ModelError(f"{path}/config.json describes no Llama model ({error})") from error
        if config.architectures != ["LlamaForCausalLM"]:
            raise ModelError(f"architecture {config.architectures} of {path} is not supported; use a Llama model")
        if config.hidden_act != "silu":
            raise ModelError(f"activation {config.hidden_act!r} of {path} is not supported; use another model")
        return cls(path, config)

    @property
    def architecture(self) -> Architecture:
        c = self.config
        return Architecture(
            num_layers=c.num_hidden_layers,
            num_heads=c.num_attention_heads,
            num_kv_heads=c.num_key_value_heads or c.num_attention_heads,
            head_dim=c.head_dim or c.hidden_size // c.num_attention_heads,
            hidden_size=c.hidden_size,
            intermediate_size=c.intermediate_size,
            vocab_size=c.vocab_size,
            max_positions=c.max_position_embeddings,
            rope_theta=_rope_theta(c),
            norm_epsilon=c.rms_norm_eps,
            tied_embedding=c.tie_word_embeddings,
        )

    def files(self) -> list[Path]:
        """The weight files, in order of name."""
        found = sorted(self.path.glob("*.safetensors"))
        if not found:
            raise ModelError(f"{self.path} has no *.safetensors file; give a model's folder")
        return found

    def checkpoint(self) -> Checkpoint:
        """The weights under their canonical names. Raises `ModelError` as `Checkpoint` does."""
        architecture = self.architecture
        weights = {_canonical(name): weight for file in self.files() for name, weight in _tensors(file).items()}
        if architecture.tied_embedding:
            weights.pop("lm_head", None)
        return Checkpoint(architecture=architecture, weights=weights)


def _rope_theta(config: LlamaConfig) -> float:
    # transformers 5 writes `rope_parameters`, those before it `rope_theta` and `rope_scaling`.
    parameters = config.rope_parameters or config.rope_scaling or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise ModelError(f"rotary scaling {kind!r} is not supported; use another model")
    return float(parameters.get("rope_theta", config.rope_theta or 10_000.0))


def _canonical(name: str) -> str:
    return name.removeprefix("model.").removesuffix(".weight")


def _tensors(path: Path) -> dict[str, Weight]:
    """Every tensor of one file, mapped into memory."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
        length = int.from_bytes(data[:_LENGTH_BYTES].tobytes(), "little")
        start = _LENGTH_BYTES + length
        header = msgspec.json.decode(data[_LENGTH_BYTES:start].tobytes(), type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        entries = {name: msgspec.json.decode(raw, type=_TensorHeader) for name, raw in header.items()}
    except (ValueError, OverflowError, OSError) as error:
        raise ModelError(f"{path} is no whole safetensors file ({error}); fetch it again") from error
    return {name: _weight(path, name, entry, data[start:]) for name, entry in entries.items()}


def _weight(path: Path, name: str, entry: _TensorHeader, data: NDArray[np.uint8]) -> Weight:
    dtype = _DTYPES.get(entry.dtype)
    if dtype is None:
        raise ModelError(f"tensor {name!r} of {path.name} is {entry.dtype}, supported are {', '.join(_DTYPES)}")
    start, stop = entry.data_offsets
    size = int(np.prod(entry.shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    if stop - start != size or start < 0 or stop > data.size:
        raise ModelError(f"{path} is cut off or damaged at tensor {name!r}; fetch it again")
    stored = data[start:stop]
    read: Callable[[], Float32Array] = partial(_as_float32, stored, dtype, tuple(entry.shape))
    return Weight(tuple(entry.shape), read)


def _as_float32(stored: NDArray[np.uint8], dtype: str, shape: tuple[int, ...]) -> Float32Array:
    # A copy, since a tensor's bytes need not be aligned in the file.
    values = np.frombuffer(stored.tobytes(), dtype=dtype).reshape(shape)
    if dtype == _DTYPES["BF16"]:
        # bfloat16 is the upper half of a float32.
        return (values.astype(np.uint32) << 16).view(np.float32)
    return values.astype(np.float32, copy=False)
