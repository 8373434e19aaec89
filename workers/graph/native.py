"""Writes `model.native`, whose layout `workers/graph/native_layout.py` describes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

import numpy as np
from numpy.typing import NDArray

from shared.errors import ModelError
from shared.model.folder import NATIVE, Architecture
from workers.graph.decoder import Progress
from workers.graph.eight_bit.quantize import ZERO_POINT, quantize
from workers.graph.native_layout import PANEL, UNIT, Form, Place, begin, padded, unpackable
from workers.graph.sources.checkpoint import ROUTER, SHARED, SHARED_GATE, Blocks, Checkpoint, Float32Array

_GATE: Final = "mlp.gate_proj"
_UP: Final = "mlp.up_proj"
_EXPERT: Final = re.compile(r"mlp\.experts\.(\d+)\.(\w+)")
# Sections by the names of the products, which the ONNX graph has too; gate waits for up.
_MATRICES: Final = {
    "self_attn.qkv": "qkv",
    "self_attn.o_proj": "o",
    _UP: "gate_up",
    "mlp.down_proj": "down",
    "embed_tokens": "embed",
    "lm_head": "head",
}
# Names of `Checkpoint` by section.
_VECTORS: Final = {
    "input_norm": "input_layernorm",
    "q_norm": "self_attn.q_norm",
    "k_norm": "self_attn.k_norm",
    "o_bias": "self_attn.o_proj.bias",
    "post_norm": "post_attention_layernorm",
    "down_bias": "mlp.down_proj.bias",
    "router": ROUTER,
    "shared_gate": SHARED_GATE,
    "norm": "norm",
}


@dataclass(slots=True)
class NativeFile:
    """An open file that is being written, section by section; `missing` are those that were not."""

    file: IO[bytes]
    places: dict[str, Place]
    missing: set[str]
    _gate: Blocks | None = None

    def matrix(self, name: str, blocks: Blocks) -> None:
        """Write the matrix of product `name`: of gate when up comes, which is next. Raises `ModelError` if a scale
        is beyond float16."""
        layer, part = _layer_and_part(name)
        # The matrices of an expert, and of the one that every token passes, are named like a layer's own.
        expert = _EXPERT.fullmatch(part)
        part = f"mlp.{expert[2]}" if expert else part.replace(SHARED, "mlp")
        if part == _GATE:
            self._gate = blocks
            return
        if part == _UP and self._gate is not None:
            blocks = Blocks.joined(interleaved, self._gate, blocks)
        try:
            if expert:
                self._put(f"{layer}experts_{_MATRICES[part]}", packed(blocks), int(expert[1]))
            else:
                self._put(layer + _MATRICES[part], packed(blocks))
        except OverflowError as error:
            raise ModelError(f"{name!r} holds weights too large for {error}; use --precision fp32") from None

    def centre(self, away: Float32Array, bias: Float32Array) -> None:
        """Write minus what is usually projected to logits `[hidden]`, and its logits `[vocabulary]`."""
        self._put("away", away)
        self._put("head_bias", _padded_rows(bias, padded(len(bias), UNIT), 0))

    def vectors(self, checkpoint: Checkpoint) -> None:
        """Write all norms and biases."""
        read = checkpoint.read
        for section in self.places:
            layer, part = _layer_and_part(section)
            if part == "qkv_bias":
                self._put(section, np.concatenate([read(f"{layer}self_attn.{which}_proj.bias") for which in "qkv"]))
            elif part == "gate_up_bias":
                self._put(section, interleaved(read(f"{layer}{_GATE}.bias"), read(f"{layer}{_UP}.bias")))
            elif part in _VECTORS:
                self._put(section, read(layer + _VECTORS[part]))

    def _put(self, section: str, values: NDArray[Any], expert: int | None = None) -> None:
        """Write a section, or an expert's part of it; experts come in order."""
        place, at = self.places[section], (expert or 0) * values.nbytes
        assert at + values.nbytes == place.size if expert is None else at + values.nbytes <= place.size, section
        self.file.seek(place.offset + at)
        self.file.write(np.ascontiguousarray(values).view(np.uint8).data)
        if at + values.nbytes == place.size:
            self.missing.remove(section)


@contextmanager
def native_file(folder: Path, architecture: Architecture, form: Form) -> Iterator[NativeFile]:
    """Create `model.native` in `folder`; its sections are written inside the block, in any order."""
    with (folder / NATIVE).open("wb") as file:
        header, places = begin(architecture, form)
        file.write(header)
        native = NativeFile(file, places, set(places))
        yield native
    assert not native.missing, min(native.missing)


def write_four_bits(checkpoint: Checkpoint, folder: Path, progress: Progress) -> None:
    """Write `model.native` of the 4 bits that the source has, as they are, and of tables in 8 bits.

    Raises `ModelError` if a layer's matrix is not of 4 bits or the native engine cannot take the model's sizes.
    """
    architecture = checkpoint.architecture
    wrong = unpackable(architecture)
    if wrong is not None:
        raise ModelError(f"the native engine cannot compute this model: its {wrong}; use --precision fp32")
    with native_file(folder, architecture, "q4") as native:
        native.vectors(checkpoint)
        for index in range(architecture.num_layers):
            progress(index / architecture.num_layers)
            layer = f"layers.{index}"
            parts = [_four_bits(checkpoint, f"{layer}.self_attn.{part}_proj") for part in "qkv"]
            native.matrix(f"{layer}.self_attn.qkv", Blocks.joined(_one_above_the_other, *parts))
            for name in (f"{layer}.{part}" for part in ("self_attn.o_proj", _GATE, _UP, "mlp.down_proj")):
                native.matrix(name, _four_bits(checkpoint, name))
        for table in checkpoint.weights.keys() & {"embed_tokens", "lm_head"}:
            native.matrix(table, Blocks(*quantize(checkpoint.read(table))))
    progress(1.0)


def interleaved(gate: NDArray[Any], up: NDArray[Any]) -> NDArray[Any]:
    """Rows of both, a panel of gate and a panel of up in turns."""
    panels = [part.reshape(-1, PANEL, *part.shape[1:]) for part in (gate, up)]
    return np.stack(panels, axis=1).reshape(-1, *gate.shape[1:])


def packed(blocks: Blocks) -> NDArray[np.uint8]:
    """Return a matrix as it is stored: `[units, superblocks, 2 panels, bytes]`. Raises `OverflowError` if a number
    is beyond float16."""
    rows, columns = padded(len(blocks.levels), UNIT), padded(blocks.levels.shape[1], 2)
    if blocks.minima is None:
        levels = _padded_rows(blocks.levels, rows, ZERO_POINT, columns)
        numbers = [blocks.scales]
    else:
        by_four = _padded_rows(blocks.levels, rows, 0, columns).reshape(rows, columns, 4, 2, 4)
        levels = by_four[..., 0, :] | by_four[..., 1, :] << 4
        numbers = [blocks.scales, blocks.minima]
    halves = [_padded_rows(_halves(values), rows, 0, columns) for values in numbers]
    # Four bytes of a column stay together.
    words = np.ascontiguousarray(levels).reshape(rows, columns, -1).view(np.uint32)
    return np.concatenate([_by_superblock(values) for values in (*halves, words)], axis=-1)


def _four_bits(checkpoint: Checkpoint, name: str) -> Blocks:
    read = checkpoint.weights[name].four_bits
    if read is None:
        raise ModelError(
            f"--precision q4 takes the 4 bits of a GGUF file in Q4_0 or Q4_1; {name!r} is not in them; "
            "give such a file, or use --precision int8"
        )
    return read()


def _one_above_the_other(*parts: NDArray[Any]) -> NDArray[Any]:
    return np.concatenate(parts)


def _by_superblock(values: NDArray[Any]) -> NDArray[np.uint8]:
    """Return `[units, superblocks, 2, bytes]` of what every row has for every block: `[rows, blocks, …]`."""
    rows, blocks = values.shape[:2]
    split = values.reshape(rows // UNIT, 2, PANEL, blocks // 2, 2, -1)
    turned = np.ascontiguousarray(split.transpose(0, 3, 1, 4, 5, 2))
    return turned.reshape(rows // UNIT, blocks // 2, 2, -1).view(np.uint8)


def _halves(values: NDArray[Any]) -> NDArray[np.float16]:
    with np.errstate(over="ignore"):
        halves = values.astype("<f2")
    if not np.isfinite(halves).all():
        raise OverflowError("float16's scales")
    return halves


def _padded_rows(values: NDArray[Any], rows: int, filler: int, columns: int | None = None) -> NDArray[Any]:
    """Return `values` padded to this number of rows (and columns)."""
    shape = (rows, *values.shape[1:]) if columns is None else (rows, columns, *values.shape[2:])
    if shape == values.shape:
        return values
    larger = np.full(shape, filler, values.dtype)
    larger[tuple(slice(size) for size in values.shape)] = values
    return larger


def _layer_and_part(name: str) -> tuple[str, str]:
    """`layers.3.mlp.up_proj` is `layers.3.` and `mlp.up_proj`, `norm` is nothing and `norm`."""
    if not name.startswith("layers."):
        return "", name
    _, layer, part = name.split(".", 2)
    return f"layers.{layer}.", part
