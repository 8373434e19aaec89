"""Reads a GGUF file (llama.cpp's format) as a `Checkpoint`."""

import math
import mmap
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError
from shared.model.folder import Architecture, FactorScaling, LinearScaling
from workers.graph.eight_bit.quantize import BLOCK_SIZE
from workers.graph.sources.checkpoint import Blocks, Checkpoint, Float32Array, Weight

# Bytes of a block of 32 weights.
_FOUR_BITS: Final = {"Q4_0": 18, "Q4_1": 20}
_T = TypeVar("_T")

_INSTEAD: Final = "use the model's safetensors folder"
# The form in which llama.cpp's converter writes Llama 3's scaling.
_SCALED_FREQUENCIES: Final = "rope_freqs.weight"
TENSORS: Final = {"token_embd.weight": "embed_tokens", "output_norm.weight": "norm", "output.weight": "lm_head"}
LAYER_TENSORS: Final = {
    "attn_norm.weight": "input_layernorm",
    "attn_q.weight": "self_attn.q_proj",
    "attn_k.weight": "self_attn.k_proj",
    "attn_v.weight": "self_attn.v_proj",
    "attn_output.weight": "self_attn.o_proj",
    "ffn_norm.weight": "post_attention_layernorm",
    "ffn_gate.weight": "mlp.gate_proj",
    "ffn_up.weight": "mlp.up_proj",
    "ffn_down.weight": "mlp.down_proj",
}


@dataclass(frozen=True, slots=True)
class GgufSource:
    """An open GGUF file: its metadata by key, its tensors mapped into memory."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, Any]

    @classmethod
    def open(cls, path: Path) -> Self:
        """Parse the header. Raises `ModelError` if the file is missing, damaged or cut off."""
        import gguf

        try:
            check_header(path)
            reader = gguf.GGUFReader(path)
            metadata = {key: field.contents() for key, field in reader.fields.items()}
        except OSError as error:
            raise ModelError(f"cannot read {path} ({error.strerror}); give the path of a GGUF file") from error
        # A damaged header can cause any of these exceptions.
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, MemoryError) as error:
            raise ModelError(f"{path} is no whole GGUF file ({error}); fetch it again") from error
        return cls(path, metadata, {tensor.name: tensor for tensor in reader.tensors})

    @property
    def architecture(self) -> Architecture:
        family = self.field("general.architecture", str)
        if family != "llama":
            raise ModelError(f"architecture {family!r} of {self.path.name} is not supported; {_INSTEAD}")
        if experts := self.metadata.get("llama.expert_count"):
            raise ModelError(f"llama.expert_count {experts} of {self.path.name} is not supported; {_INSTEAD}")
        num_heads = self.field("llama.attention.head_count", int)
        hidden_size = self.field("llama.embedding_length", int)
        head_dim = int(self.metadata.get("llama.attention.key_length", hidden_size // num_heads))
        if int(self.metadata.get("llama.rope.dimension_count", head_dim)) != head_dim:
            raise ModelError(f"{self.path.name} rotates a part of each head only, which is not supported")
        return Architecture(
            num_layers=self.field("llama.block_count", int),
            num_heads=num_heads,
            num_kv_heads=int(self.metadata.get("llama.attention.head_count_kv", num_heads)),
            head_dim=head_dim,
            hidden_size=hidden_size,
            intermediate_size=self.field("llama.feed_forward_length", int),
            vocab_size=len(self.field("tokenizer.ggml.tokens", list)),
            max_positions=self.field("llama.context_length", int),
            rope_theta=float(self.metadata.get("llama.rope.freq_base", 10_000.0)),
            rope_scaling=self._rope_scaling(head_dim),
            norm_epsilon=self.field("llama.attention.layer_norm_rms_epsilon", float),
            tied_embedding="output.weight" not in self.tensors,
        )

    def _rope_scaling(self, head_dim: int) -> LinearScaling | FactorScaling | None:
        """Return the scaling by its kind, or by the factors of Llama 3.1 and later. Raises `ModelError`."""
        kind = self.metadata.get("llama.rope.scaling.type", "none")
        if (tensor := self.tensors.get(_SCALED_FREQUENCIES)) is not None and kind == "none":
            factors = tuple(float(factor) for factor in _dequantize(tensor, None).ravel())
            if len(factors) == head_dim // 2 and all(0 < factor < math.inf for factor in factors):
                return FactorScaling(factors=factors)
            raise ModelError(f"{_SCALED_FREQUENCIES} of {self.path.name} is damaged; fetch the file again")
        if kind == "linear":
            return LinearScaling(factor=self.field("llama.rope.scaling.factor", float))
        if kind != "none":
            raise ModelError(f"rotary scaling {kind!r} of {self.path.name} is not supported; {_INSTEAD}")
        return None

    def checkpoint(self) -> Checkpoint:
        """Return the weights under their canonical names. Raises `ModelError` as `Checkpoint` does."""
        architecture = self.architecture
        heads = {"self_attn.q_proj": architecture.num_heads, "self_attn.k_proj": architecture.num_kv_heads}
        weights = {}
        for name, tensor in self.tensors.items():
            if name == _SCALED_FREQUENCIES:
                continue
            canonical = _canonical(name)
            interleaved_heads = heads.get(canonical.split(".", 2)[-1])
            four_bits = tensor.tensor_type.name in _FOUR_BITS
            weights[canonical] = Weight(
                tuple(int(size) for size in reversed(tensor.shape)),
                partial(_dequantize, tensor, interleaved_heads),
                partial(_four_bits, tensor, interleaved_heads) if four_bits else None,
            )
        return Checkpoint(architecture=architecture, weights=weights)

    def field(self, key: str, kind: type[_T]) -> _T:
        """Return the metadata value `key`. Raises `ModelError` if it is missing or of another type."""
        value = self.metadata.get(key)
        if not isinstance(value, kind):
            raise ModelError(f"{self.path.name} has no {kind.__name__} {key!r}; use another GGUF file")
        return value


def _canonical(name: str) -> str:
    if not name.startswith("blk."):
        return TENSORS.get(name, name)
    _, index, rest = name.split(".", 2)
    return f"layers.{index}.{LAYER_TENSORS.get(rest, rest)}"


def _dequantize(tensor: Any, interleaved_heads: int | None) -> Float32Array:
    import gguf

    weight: Float32Array = gguf.dequantize(tensor.data, tensor.tensor_type).astype(np.float32, copy=False)
    return weight if interleaved_heads is None else _half_split(weight, heads=interleaved_heads)


def _four_bits(tensor: Any, interleaved_heads: int | None) -> Blocks:
    """Return the blocks of a Q4_0 or Q4_1 tensor without rounding. A block has a float16 scale (Q4_1: and a minimum),
    then 32 levels of 4 bits: the low halves of its 16 bytes hold the first 16."""
    kind = tensor.tensor_type.name
    columns, rows = (int(size) for size in tensor.shape)
    data = np.ascontiguousarray(tensor.data).view(np.uint8).reshape(rows, columns // BLOCK_SIZE, _FOUR_BITS[kind])
    numbers, pairs = data[..., :-16].copy().view("<f2"), data[..., -16:]
    scales = numbers[..., 0]
    with np.errstate(over="ignore"):
        minima = numbers[..., 1] if kind == "Q4_1" else scales * np.float16(-8)
    blocks = Blocks(np.concatenate([pairs & 15, pairs >> 4], axis=-1), scales, minima)
    return blocks if interleaved_heads is None else Blocks.joined(partial(_half_split, heads=interleaved_heads), blocks)


def _half_split(rows: NDArray[Any], *, heads: int) -> NDArray[Any]:
    """Reorder the rows of each head from llama.cpp's order (0, d/2, 1, d/2+1, …) to (0, 1, 2, …)."""
    pairs = rows.reshape(heads, rows.shape[0] // heads // 2, 2, *rows.shape[1:])
    return pairs.swapaxes(1, 2).reshape(rows.shape)


_MAGIC: Final = b"GGUF"
_VERSIONS: Final = (2, 3)
_MAX_KEY_BYTES: Final = 65_535
_MAX_DIMS: Final = 4
_MAX_ELEMENTS: Final = 2**48
_STRING: Final = 8
_ARRAY: Final = 9
# By ggml's numbers: uint8, int8, uint16, int16, uint32, int32, float32, bool, uint64, int64, float64.
_SCALAR_BYTES: Final = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def check_header(path: Path) -> None:
    """Check that every length in a file's header fits into the file (the format: ggml's docs/gguf.md).

    The `gguf` package does not check: for a header that names an array of 2^60 elements it loops 2^60 times.

    Raises:
        ValueError: the header is wrong; the message says where
        OSError: the file cannot be read
    """
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("it does not begin as GGUF does")
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            _GgufHeader(data, len(data), len(_MAGIC)).check()


@dataclass(slots=True)
class _GgufHeader:
    """Reads the header; `at` is the offset of the next byte."""

    data: mmap.mmap
    size: int
    at: int

    def check(self) -> None:
        version = self._number("<I")
        if version not in _VERSIONS:
            raise ValueError(f"version {version} is not supported")
        tensors, fields = self._number("<Q"), self._number("<Q")
        for _ in range(fields):
            self._string(_MAX_KEY_BYTES)
            self._value(self._number("<I"))
        for _ in range(tensors):
            self._tensor()

    def _value(self, kind: int) -> None:
        if kind == _STRING:
            self._string(self.size)
        elif kind == _ARRAY:
            self._array()
        else:
            self._skip(self._bytes_of(kind))

    def _array(self) -> None:
        kind, length = self._number("<I"), self._number("<Q")
        if kind != _STRING:
            self._skip(length * self._bytes_of(kind))
            return
        for _ in range(length):
            self._string(self.size)

    def _tensor(self) -> None:
        self._string(_MAX_KEY_BYTES)
        dims = self._number("<I")
        if dims > _MAX_DIMS:
            raise ValueError(f"a tensor has {dims} dimensions, {_MAX_DIMS} at most are read")
        elements = 1
        for _ in range(dims):
            elements *= self._number("<Q")
        if elements > _MAX_ELEMENTS:
            raise ValueError(f"a tensor has {elements} elements")
        self._number("<I")
        if self._number("<Q") > self.size:
            raise ValueError("a tensor begins behind the file's end")

    def _bytes_of(self, kind: int) -> int:
        size = _SCALAR_BYTES.get(kind)
        if size is None:
            raise ValueError(f"a value has the unknown type {kind}")
        return size

    def _number(self, form: str) -> int:
        size = struct.calcsize(form)
        start = self.at
        self._skip(size)
        number: int = struct.unpack_from(form, self.data, start)[0]
        return number

    def _string(self, most: int) -> None:
        length = self._number("<Q")
        if length > most:
            raise ValueError(f"a text of {length} bytes is longer than it may be")
        self._skip(length)

    def _skip(self, size: int) -> None:
        if size > self.size - self.at:
            raise ValueError("it is cut off")
        self.at += size
