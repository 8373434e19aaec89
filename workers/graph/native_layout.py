"""The layout of `model.native`, the packed weights that the native CPU engine maps into memory. Little-endian.

    8 bytes  RLNATIVE
    u32      version of the layout
    u32      length of the index in bytes
    JSON     the index: {"form": "int8" or "q4", "sections": {name: [offset, size]}}
    …        sections, each at a multiple of 64 bytes, the first at a multiple of 4,096

A section is a vector of float32 or a matrix `[n, k]` (out, in). A *panel* is 16 columns of a product's output, a *unit*
is two panels, a *superblock* is one panel by 64 inputs. A matrix is `[n / 32][k / 64][2 panels][superblock]`, n padded
to a multiple of 32 and k to one of 64, by zeros. A superblock has two halves, of 32 inputs each:

- `int8`, 1,088 bytes: float16 scales `[half][16]`, then levels `[half][8][16][4 inputs]`, bytes with zero point 128.
- `q4`, 640 bytes: float16 scales d `[half][16]`, float16 minima m `[half][16]`, then levels `[half][4][16][4 bytes]`.
  Byte b of group g holds input 8g + b in its low four bits and 8g + 4 + b in its high ones. A weight is d * level + m.

A layer with experts has a `router` `[experts, hidden]` in float32, and the matrices of all experts one after the other;
its `gate_up` and `down` are of the expert that every token passes, if there is one, and `shared_gate` `[hidden]` too.

Rows of `qkv` are the heads of queries, keys and values side by side, in the order of `Checkpoint`. Panels of `gate_up`
alternate: 16 rows of gate, 16 of up; so does its bias. `embed` and `head` are int8 in both forms; a model without
`head` is tied. `away` is minus the usual input of the head: it is added before the product, and `head_bias`, the logits
of that usual input, after it.
"""

import mmap
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

import msgspec
from msgspec import Struct

from shared.errors import ModelError
from shared.model.folder import REMEDY, Architecture

Form = Literal["int8", "q4"]
Kind = Literal["float32", "int8", "q4"]

MAGIC: Final = b"RLNATIVE"
VERSION: Final = 1
SECTION_ALIGNMENT: Final = 64
PAGE: Final = 4096
PANEL: Final = 16
UNIT: Final = 32
SUPERBLOCK: Final = 64
SUPERBLOCK_BYTES: Final[dict[Kind, int]] = {"int8": 1_088, "q4": 640}
HEADER: Final = struct.Struct("<8sII")
_MAX_INDEX_BYTES: Final = 4_194_304

# All sections there may be, in the order of the file and of the C interface.
LAYER_SECTIONS: Final = (
    "input_norm",
    "qkv",
    "qkv_bias",
    "q_norm",
    "k_norm",
    "o",
    "o_bias",
    "post_norm",
    "gate_up",
    "gate_up_bias",
    "down",
    "down_bias",
    "router",
    "shared_gate",
    "experts_gate_up",
    "experts_down",
)
LAST_SECTIONS: Final = ("norm", "embed", "head", "away", "head_bias")


class Section(NamedTuple):
    """A part of the file. `shape` is a matrix's or vector's shape without padding; `size` in bytes includes the padding
    of a matrix."""

    kind: Kind
    shape: tuple[int, ...]
    size: int


class Place(NamedTuple):
    """Bytes of a section in the file."""

    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Index:
    form: Form
    places: dict[str, Place]


class _LayoutIndex(Struct, frozen=True, forbid_unknown_fields=True):
    form: Form
    sections: dict[str, Place]


def section_names(num_layers: int) -> Iterator[str]:
    """Yield the name of every section that there may be, in order."""
    for layer in range(num_layers):
        yield from (f"layers.{layer}.{name}" for name in LAYER_SECTIONS)
    yield from LAST_SECTIONS


def sections(architecture: Architecture, form: Form) -> dict[str, Section]:
    """Return the sections that a model of `architecture` has, in order."""
    a = architecture
    query, packed = a.num_heads * a.head_dim, (a.num_heads + 2 * a.num_kv_heads) * a.head_dim
    layer = {
        "input_norm": _vector(a.hidden_size),
        "qkv": _matrix(form, packed, a.hidden_size),
        "qkv_bias": _vector(packed) if a.qkv_bias else None,
        "q_norm": _vector(a.norm_sizes[0]) if a.query_key_norm else None,
        "k_norm": _vector(a.norm_sizes[1]) if a.query_key_norm else None,
        "o": _matrix(form, a.hidden_size, query),
        "o_bias": _vector(a.hidden_size) if a.output_bias else None,
        "post_norm": _vector(a.hidden_size),
    }
    last = {
        "norm": _vector(a.hidden_size),
        "embed": _matrix("int8", a.vocab_size, a.hidden_size),
        "head": None if a.tied_embedding else _matrix("int8", a.vocab_size, a.hidden_size),
        "away": _vector(a.hidden_size) if form == "int8" else None,
        "head_bias": _vector(padded(a.vocab_size, UNIT)) if form == "int8" else None,
    }
    found = {
        f"layers.{index}.{name}": section
        for index in range(a.num_layers)
        for name, section in (layer | _mlp_sections(a, form, index)).items()
    }
    return {name: section for name, section in (found | last).items() if section is not None}


def _mlp_sections(a: Architecture, form: Form, layer: int) -> dict[str, Section | None]:
    experts, width = a.experts_in(layer), a.mlp_width(layer)
    biased = a.mlp_bias and experts is None
    found = {
        "gate_up": _matrix(form, 2 * width, a.hidden_size) if width else None,
        "gate_up_bias": _vector(2 * width) if biased else None,
        "down": _matrix(form, a.hidden_size, width) if width else None,
        "down_bias": _vector(a.hidden_size) if biased else None,
    }
    if experts is None:
        return found
    return found | {
        "router": _vector(experts.count * a.hidden_size),
        "shared_gate": _vector(a.hidden_size) if experts.shared_width else None,
        "experts_gate_up": _matrix(form, experts.count * 2 * experts.width, a.hidden_size),
        "experts_down": _matrix(form, experts.count * a.hidden_size, experts.width),
    }


def begin(architecture: Architecture, form: Form) -> tuple[bytes, dict[str, Place]]:
    """Return the bytes before the first section of a new file, and each section's place in it."""
    start, encoded = 0, b""
    while start < HEADER.size + len(encoded):
        start = at = padded(HEADER.size + len(encoded), PAGE)
        places = {}
        for name, section in sections(architecture, form).items():
            places[name] = Place(at, section.size)
            at = padded(at + section.size, SECTION_ALIGNMENT)
        encoded = msgspec.json.encode(_LayoutIndex(form, places))
    return HEADER.pack(MAGIC, VERSION, len(encoded)) + encoded, places


def unpackable(architecture: Architecture) -> str | None:
    """Return why a model cannot be packed, which names the number; None where it can be."""
    a = architecture
    for name, value, multiple in (
        ("hidden_size", a.hidden_size, UNIT),
        ("intermediate_size", a.intermediate_size, UNIT),
        ("num_heads * head_dim", a.num_heads * a.head_dim, UNIT),
        ("head_dim", a.head_dim, PANEL),
        *(
            ()
            if a.experts is None
            else (("experts.width", a.experts.width, UNIT), ("experts.shared_width", a.experts.shared_width, UNIT))
        ),
    ):
        if value % multiple:
            return f"{name} {value} is no multiple of {multiple}"
    return None


def read_index(data: bytes | mmap.mmap | memoryview, architecture: Architecture, file: Path) -> Index:
    """Return where each section of `data`, the bytes of `file`, lies: the very sections that `architecture` has.

    Raises `ModelError` if the file is not of this layout, or a section is missing, outside the file, not aligned or
    not of its size.
    """
    wrong = unpackable(architecture)
    if wrong is not None:
        raise ModelError(f"{file} cannot be of this model: its {wrong}; {REMEDY}")
    index = _decoded(data, file)
    expected = sections(architecture, index.form)
    different = sorted(expected.keys() ^ index.sections.keys())
    if different:
        raise ModelError(f"{file} {'lacks' if different[0] in expected else 'has'} {different[0]!r}; {REMEDY}")
    for name, section in expected.items():
        offset, size = index.sections[name]
        if size != section.size:
            raise ModelError(f"{file}: {name} has {size} bytes, the manifest's model {section.size}; {REMEDY}")
        if not HEADER.size <= offset <= len(data) - size:
            raise ModelError(f"{file}: {name} lies outside the file; {REMEDY}")
        if offset % SECTION_ALIGNMENT:
            raise ModelError(f"{file}: {name} begins at {offset}, no multiple of {SECTION_ALIGNMENT}; {REMEDY}")
    return Index(index.form, {name: index.sections[name] for name in expected})


def _decoded(data: bytes | mmap.mmap | memoryview, file: Path) -> _LayoutIndex:
    if len(data) < HEADER.size:
        raise ModelError(f"{file} has {len(data)} bytes, fewer than its header; {REMEDY}")
    magic, version, length = HEADER.unpack_from(data)
    if magic != MAGIC:
        raise ModelError(f"{file} does not begin with {MAGIC.decode()}; {REMEDY}")
    if version != VERSION:
        raise ModelError(f"{file} has layout version {version}, this Replyline reads {VERSION}; {REMEDY}")
    if length > min(_MAX_INDEX_BYTES, len(data) - HEADER.size):
        raise ModelError(f"{file}: its index of {length} bytes is cut off or too long; {REMEDY}")
    try:
        return msgspec.json.decode(bytes(data[HEADER.size : HEADER.size + length]), type=_LayoutIndex)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise ModelError(f"{file}: its index is damaged ({error}); {REMEDY}") from error


def _vector(size: int) -> Section:
    return Section("float32", (size,), 4 * size)


def _matrix(kind: Form, rows: int, columns: int) -> Section:
    panels, superblocks = padded(rows, UNIT) // PANEL, padded(columns, SUPERBLOCK) // SUPERBLOCK
    return Section(kind, (rows, columns), panels * superblocks * SUPERBLOCK_BYTES[kind])


def padded(size: int, multiple: int) -> int:
    """Return the next multiple."""
    return -(-size // multiple) * multiple
