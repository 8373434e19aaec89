"""The contents of `model.native`, located byte by byte from its documented layout, and numpy's results for it.

The writer's code is not used here: a weight's position is calculated from its row and column.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from shared.model.folder import NATIVE, Architecture, Experts, ModelFolder
from tests.support.models.reference import reference_logits
from workers.graph.native_layout import Index, read_index, sections
from workers.graph.sources.checkpoint import ROUTER, SHARED, SHARED_GATE, Blocks, Checkpoint, Weight


@dataclass(slots=True)
class PackedFile:
    """The sections of an int8 or a q4 file by name."""

    data: bytes
    architecture: Architecture
    index: Index = field(init=False)

    def __post_init__(self) -> None:
        self.index = read_index(self.data, self.architecture, Path(NATIVE))

    def vector(self, name: str) -> np.ndarray:
        offset, size = self.index.places[name]
        return np.frombuffer(self.data, "<f4", size // 4, offset).copy()

    def blocks(self, name: str) -> Blocks:
        """Levels and scales of a matrix, without its padding."""
        section = sections(self.architecture, self.index.form)[name]
        offset, size = self.index.places[name]
        data = np.frombuffer(self.data, np.uint8, size, offset)
        rows, columns = section.shape
        return unpacked(data, rows, columns, four_bits=section.kind == "q4")


def unpacked(data: np.ndarray, rows: int, columns: int, *, four_bits: bool) -> Blocks:
    row, column = np.arange(rows)[:, np.newaxis], np.arange(columns)[np.newaxis]
    unit, panel, lane = row // 32, row // 16 % 2, row % 16
    half, at = column // 32 % 2, column % 32
    superblock = (unit * -(-columns // 64) + column // 64) * 2 + panel
    scale = (half * 16 + lane) * 2

    def halves(start: np.ndarray) -> np.ndarray:
        return (data[start] | data[start + 1].astype(np.uint16) << 8).view("<f2")[:, ::32]

    if not four_bits:
        start = superblock * 1088
        levels = data[start + 64 + half * 512 + at // 4 * 64 + lane * 4 + at % 4]
        return Blocks(levels.reshape(rows, -1, 32), halves(start + scale))
    start = superblock * 640
    pairs = data[start + 128 + half * 256 + at // 8 * 64 + lane * 4 + at % 4]
    levels = np.where(at // 4 % 2, pairs >> 4, pairs & 15)
    return Blocks(levels.reshape(rows, -1, 32), halves(start + scale), halves(start + 64 + scale))


def dequantized(blocks: Blocks) -> np.ndarray:
    """The matrix."""
    levels, scales = blocks.levels.astype(np.float32), blocks.scales.astype(np.float32)[..., np.newaxis]
    if blocks.minima is None:
        weights = (levels - 128) * scales
    else:
        weights = levels * scales + blocks.minima.astype(np.float32)[..., np.newaxis]
    return weights.reshape(len(levels), -1)


def rounded(values: np.ndarray) -> np.ndarray:
    """Activations in 8 bits, each block of 32 by its largest."""
    blocks = values.reshape(len(values), -1, 32)
    steps = np.abs(blocks).max(axis=-1, keepdims=True) / np.float32(127) + np.finfo(np.float32).tiny
    return (np.rint(blocks / steps) * steps).reshape(values.shape)


class _Rounded:
    """`Products` of rounded activations."""

    def multiply(self, name: str, value: np.ndarray, matrix: np.ndarray) -> np.ndarray:
        return (value if name.endswith((ROUTER, SHARED_GATE)) else rounded(value)) @ matrix.T


def packed_checkpoint(packed: PackedFile) -> Checkpoint:
    """The weights of a file, in float32 and apart again."""
    a = packed.architecture
    query, key_value = a.num_heads * a.head_dim, a.num_kv_heads * a.head_dim
    found: dict[str, np.ndarray] = {"embed_tokens": dequantized(packed.blocks("embed")), "norm": packed.vector("norm")}
    if not a.tied_embedding:
        found["lm_head"] = dequantized(packed.blocks("head"))
    for index in range(a.num_layers):
        layer, experts = f"layers.{index}", a.experts_in(index)
        mlp = "mlp" if experts is None else SHARED
        for suffix, read in (("", lambda name: dequantized(packed.blocks(name))), (".bias", packed.vector)):
            ending = suffix.replace(".", "_")
            if f"{layer}.qkv{ending}" in packed.index.places:
                parts = np.split(read(f"{layer}.qkv{ending}"), [query, query + key_value])
                found |= {f"{layer}.self_attn.{p}_proj{suffix}": part for p, part in zip("qkv", parts, strict=True)}
            if f"{layer}.o{ending}" in packed.index.places:
                found[f"{layer}.self_attn.o_proj{suffix}"] = read(f"{layer}.o{ending}")
            if f"{layer}.gate_up{ending}" in packed.index.places:
                both = read(f"{layer}.gate_up{ending}")
                is_up = np.arange(len(both)) // 16 % 2 == 1
                found |= {
                    f"{layer}.{mlp}.gate_proj{suffix}": both[~is_up],
                    f"{layer}.{mlp}.up_proj{suffix}": both[is_up],
                    f"{layer}.{mlp}.down_proj{suffix}": read(f"{layer}.down{ending}"),
                }
        if experts is not None:
            found |= _experts(packed, layer, experts)
        norms = {"input_layernorm": "input_norm", "post_attention_layernorm": "post_norm"}
        norms |= {f"self_attn.{part}_norm": f"{part}_norm" for part in "qk"} if a.query_key_norm else {}
        found |= {f"{layer}.{name}": packed.vector(f"{layer}.{section}") for name, section in norms.items()}
    weights = {name: Weight(values.shape, lambda values=values: values) for name, values in found.items()}
    return Checkpoint(architecture=a, weights=weights)


def _experts(packed: PackedFile, layer: str, experts: Experts) -> dict[str, np.ndarray]:
    found = {f"{layer}.{ROUTER}": packed.vector(f"{layer}.router").reshape(experts.count, -1)}
    if experts.shared_width:
        found[f"{layer}.{SHARED_GATE}"] = packed.vector(f"{layer}.shared_gate").reshape(1, -1)
    both = np.split(dequantized(packed.blocks(f"{layer}.experts_gate_up")), experts.count)
    down = np.split(dequantized(packed.blocks(f"{layer}.experts_down")), experts.count)
    is_up = np.arange(2 * experts.width) // 16 % 2 == 1
    for number in range(experts.count):
        prefix = f"{layer}.mlp.experts.{number}"
        found |= {f"{prefix}.gate_proj": both[number][~is_up], f"{prefix}.up_proj": both[number][is_up]}
        found[f"{prefix}.down_proj"] = down[number]
    return found


def packed_logits(folder: ModelFolder, token_ids: Sequence[int]) -> np.ndarray:
    """Logits `[tokens, vocabulary]` after each token, by numpy: rounded as the native engine rounds, KV in float32."""
    packed = PackedFile((folder.path / NATIVE).read_bytes(), folder.manifest.architecture)
    centre = (packed.vector("away"), packed.vector("head_bias")) if "away" in packed.index.places else None
    return reference_logits(packed_checkpoint(packed), token_ids, _Rounded(), centre)
