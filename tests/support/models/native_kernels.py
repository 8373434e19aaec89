"""The native library called directly, on random weights of any shape.

Every buffer of a test ends right before a protected page, or begins right after one: reading or writing past the buffer
ends the process. Weights are read-only.
"""

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from hypothesis import strategies as st

from shared.model.folder import Architecture, Experts
from workers.engine.native.library import Library, NativeConfig
from workers.graph.native_layout import LAST_SECTIONS, SUPERBLOCK_BYTES, Form, Section, padded, section_names, sections
from workers.graph.rotary import rotary_tables

PAGE: Final = mmap.PAGESIZE
_MPROTECT: Final = ctypes.CDLL(None, use_errno=True).mprotect
_MPROTECT.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
Rows = Sequence[tuple[int, int, int]]  # token, slot, position


def guarded(values: np.ndarray, *, at_end: bool = True, writable: bool = True) -> np.ndarray:
    """Return a copy between two protected pages, adjacent to the second of them or to the first."""
    pages = padded(max(values.nbytes, 1), PAGE)
    memory = mmap.mmap(-1, PAGE + pages + PAGE)
    start = PAGE + (pages - values.nbytes if at_end else 0)
    whole = np.frombuffer(memory, np.uint8)
    copy = np.frombuffer(memory, values.dtype, values.size, start).reshape(values.shape)
    copy[...] = values
    address = whole.ctypes.data
    for begin, size, protection in (
        (address, PAGE, 0),
        (address + PAGE, pages, mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)),
        (address + PAGE + pages, PAGE, 0),
    ):
        assert not _MPROTECT(begin, size, protection)
    return copy


@st.composite
def architectures(draw: st.DrawFn) -> Architecture:
    """Every shape and every part that a family may have; vocabularies that fill no unit among them."""
    kv_heads, per = draw(st.integers(1, 3)), draw(st.sampled_from((1, 2, 3, 4, 5, 7, 13)))
    head_dim = 16 * draw(st.integers(1, 9))
    has = st.booleans()
    return Architecture(
        num_layers=draw(st.integers(1, 2)),
        num_heads=kv_heads * per * (1 + kv_heads * per * head_dim // 16 % 2),
        num_kv_heads=kv_heads,
        head_dim=head_dim,
        hidden_size=32 * draw(st.integers(1, 5)),
        intermediate_size=32 * draw(st.integers(1, 5)),
        vocab_size=draw(st.integers(1, 150)),
        max_positions=4096,
        rope_theta=10_000.0,
        norm_epsilon=1e-5,
        tied_embedding=draw(has),
        qkv_bias=draw(has),
        output_bias=draw(has),
        mlp_bias=draw(has),
        query_key_norm=draw(has),
        joint_norm=draw(has),
        experts=draw(st.none() | mixtures()),
    )


@st.composite
def mixtures(draw: st.DrawFn) -> Experts:
    count = draw(st.integers(1, 5))
    return Experts(
        count=count,
        chosen=draw(st.integers(1, count)),
        width=32 * draw(st.integers(1, 3)),
        normalized=draw(st.booleans()),
        shared_width=32 * draw(st.integers(0, 3)),
        dense_layers=draw(st.sampled_from(((), (0,)))),
    )


@dataclass(frozen=True, slots=True)
class Weights:
    """Sections by name; no padding is zero. `low`: every logit of a real token is far below 0."""

    architecture: Architecture
    form: Form
    arrays: dict[str, np.ndarray]

    @classmethod
    def random(cls, architecture: Architecture, form: Form, seed: int, *, low: bool, at_end: bool) -> "Weights":
        draw = np.random.default_rng(seed)
        arrays = {name: _filled(name, each, draw) for name, each in sections(architecture, form).items()}
        if low and "head_bias" in arrays:
            arrays["head_bias"][: architecture.vocab_size] -= 100
        arrays = {name: guarded(values, at_end=at_end, writable=False) for name, values in arrays.items()}
        return cls(architecture, form, arrays)

    def sections(self, tables: Sequence[np.ndarray]) -> list[np.ndarray | None]:
        """In the order of `native_open`."""
        layers = [*section_names(self.architecture.num_layers)][: -len(LAST_SECTIONS)]
        return [*tables, *(self.arrays.get(name) for name in (*LAST_SECTIONS, *layers))]


def _filled(name: str, section: Section, draw: np.random.Generator) -> np.ndarray:
    if section.kind == "float32":
        noise = draw.standard_normal(section.size // 4, np.float32) / 4
        return noise + 1 if name.endswith("norm") else noise
    size, num_scales = SUPERBLOCK_BYTES[section.kind], {"int8": 32, "q4": 64}[section.kind]
    blocks = draw.integers(0, 256, (section.size // size, size), np.uint8)
    # Products stay near 1, so that nothing overflows.
    largest = {"int8": 128, "q4": 8}[section.kind] * section.shape[1] ** 0.5
    scales = draw.standard_normal((len(blocks), num_scales), np.float32) / np.float32(largest)
    blocks[:, : 2 * num_scales] = scales.astype("<f2").view(np.uint8)
    return blocks


@dataclass(slots=True)
class Direct:
    """An open engine of the library. Use `opened`."""

    library: Library
    weights: Weights
    handle: int
    config: NativeConfig
    sections: list[np.ndarray | None] = field(repr=False)

    def step(self, rows: Rows, wanted: Sequence[int]) -> np.ndarray:
        """Return the logits `[wanted, vocabulary]`. The best id is the first of the largest of these."""
        status, logits, best, peaks = self.attempt(rows, wanted)
        assert status == 0
        logits = logits[:, : self.config.vocabulary]
        assert best.tolist() == logits.argmax(axis=1).tolist()
        assert peaks.tolist() == logits.max(axis=1).tolist()
        return logits

    def attempt(
        self, rows: Rows, wanted: Sequence[int], *, tokens: int | None = None, num_wanted: int | None = None
    ) -> tuple[int, np.ndarray, np.ndarray, np.ndarray]:
        """Return native_step's status and its output, in a buffer filled with -7. `tokens` and `num_wanted` may differ
        from the rows."""
        given = [guarded(part) for part in np.array(rows, np.int32).reshape(-1, 3).T]
        asked = guarded(np.array(wanted, np.int32))
        stride = self.library.functions.native_stride(self.handle)
        logits = guarded(np.full((len(wanted), stride), -7, np.float32))
        best, peaks = (guarded(np.full(len(wanted), -7, dtype)) for dtype in (np.int32, np.float32))
        status = self.library.functions.native_step(
            self.handle,
            len(rows) if tokens is None else tokens,
            *(part.ctypes.data for part in given),
            len(wanted) if num_wanted is None else num_wanted,
            *(part.ctypes.data for part in (asked, logits, best, peaks)),
        )
        return status, logits, best, peaks

    def export(self, slot: int, start: int, stop: int) -> np.ndarray:
        a = self.weights.architecture
        shape = (a.num_layers, 2, a.num_kv_heads, stop - start, a.head_dim)
        values = guarded(np.zeros(shape, np.uint16))
        self.library.functions.native_export(self.handle, slot, start, stop, values.ctypes.data)
        return values

    def import_(self, slot: int, start: int, values: np.ndarray) -> int:
        kept = guarded(values, writable=False)
        stop = start + values.shape[3]
        return int(self.library.functions.native_import(self.handle, slot, start, stop, kept.ctypes.data))

    def move(self, source: int, target: int, length: int) -> None:
        self.library.functions.native_move(self.handle, source, target, length)


@contextmanager
def opened(
    library: Library, weights: Weights, *, slots: int, capacity: int, threads: int, max_step_tokens: int = 64
) -> Iterator[Direct]:
    a = weights.architecture
    config = NativeConfig.for_model(
        a, slots=slots, capacity=capacity, max_step_tokens=max_step_tokens, threads=threads, q4=weights.form == "q4"
    )
    tables = [guarded(table, writable=False) for table in rotary_tables(a, capacity)]
    found = weights.sections(tables)
    handle = library.open(config, [None if values is None else values.ctypes.data for values in found])
    yield Direct(library, weights, handle, config, found)
    library.functions.native_close(handle)


@dataclass(slots=True)
class Alone:
    """The reference: one token per step, one thread, one sequence."""

    engine: Direct
    _held: list[int] = field(default_factory=list)
    _known: dict[tuple[int, ...], np.ndarray] = field(default_factory=dict)

    def logits(self, ids: Sequence[int]) -> np.ndarray:
        """`[vocabulary]` after all of `ids`."""
        found = self._known.get((*ids,))
        if found is not None:
            return found
        shared = next((i for i, (a, b) in enumerate(zip(ids, self._held, strict=False)) if a != b), None)
        shared = min(len(ids) - 1, len(self._held)) if shared is None else shared
        for position in range(shared, len(ids)):
            [row] = self.engine.step([(ids[position], 0, position)], [0])
            self._known[(*ids[: position + 1],)] = row
        self._held = [*ids]
        return row
