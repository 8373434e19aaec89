"""The memory layout of the slots' KV on the device, and of the rows of a decode step. Pure.

All slots are one array `[layers, 2, slots, kv heads, capacity, head dim]` that never moves. A layer's keys (or values)
of consecutive slots are contiguous, so a program gets the first n slots, or those from slot s, as its
`past_key.{layer}` at one address: base + s * `slot_bytes`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Self

from workers.engine.device import ALIGNMENT, Extent, StridedBlock
from workers.engine.kv_layout import KvLayout
from workers.graph.decoder import cache_names

# This many rows of a head are a multiple of TensorRT's alignment: head dims are multiples of 16, and numbers have 2
# bytes.
_ROWS_MULTIPLE: Final = 8


def slot_capacity(max_length: int, max_positions: int) -> int:
    """Return the capacity of a slot in tokens: `max_length` plus one, rounded up, at most the model's positions.

    A decode step is padded to the next batch size. The padding's rows are real slots whose sequences must not change,
    so their token is written to a slot's last position, `capacity - 1`, which no sequence attends to.
    """
    rounded = -(-(max_length + 1) // _ROWS_MULTIPLE) * _ROWS_MULTIPLE
    return min(rounded, max_positions)


def batch_sizes(num_slots: int) -> tuple[int, ...]:
    """Return the batch sizes to which decode steps are padded: powers of two, and all slots."""
    powers = [1 << exponent for exponent in range(num_slots.bit_length()) if 1 << exponent < num_slots]
    return (*powers, num_slots)


def batch_size_for(num_rows: int, sizes: tuple[int, ...]) -> int:
    """Return the smallest batch size for `num_rows`."""
    return next(size for size in sizes if size >= num_rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLayout:
    """The layout. Raises `ValueError` if slots would not begin at addresses that TensorRT accepts."""

    layers: int
    slots: int
    heads: int
    capacity: int
    dim: int
    itemsize: int

    def __post_init__(self) -> None:
        if self.slot_bytes % ALIGNMENT:
            raise ValueError(f"a slot of {self.slot_bytes} bytes in a layer is no multiple of {ALIGNMENT}")

    @classmethod
    def for_kv(cls, layout: KvLayout, *, slots: int, capacity: int) -> Self:
        """Return the layout of this many slots for a model's KV."""
        return cls(
            layers=layout.layers,
            slots=slots,
            heads=layout.heads,
            capacity=capacity,
            dim=layout.dim,
            itemsize=layout.numpy_dtype.itemsize,
        )

    @property
    def token_bytes(self) -> int:
        """Return the bytes of one token in one head of one layer's keys."""
        return self.dim * self.itemsize

    @property
    def slot_bytes(self) -> int:
        """Return the bytes of one slot in one layer's keys."""
        return self.heads * self.capacity * self.token_bytes

    @property
    def num_bytes(self) -> int:
        return 2 * self.layers * self.slots * self.slot_bytes

    def shape(self, rows: int) -> tuple[int, int, int, int]:
        """Return the shape of one layer's keys of `rows` slots."""
        return (rows, self.heads, self.capacity, self.dim)

    def caches(self, base: int, first_slot: int) -> Iterator[tuple[str, str, int]]:
        """Yield each cache's input, output and their common address, for slots from `first_slot`."""
        names = zip(cache_names("past", self.layers), cache_names("present", self.layers), strict=True)
        for place, (past, present) in enumerate(names):
            yield past, present, base + (place * self.slots + first_slot) * self.slot_bytes

    def block(self, base: int, slot: int, start: int) -> StridedBlock:
        """Return the KV of `slot` from token `start`, with a row for each head and a slice for each layer's keys or
        values."""
        address = base + slot * self.slot_bytes + start * self.token_bytes
        return StridedBlock(address, pitch=self.capacity * self.token_bytes, rows=self.slots * self.heads)

    def dense_block(self, address: int, num_tokens: int) -> StridedBlock:
        """Return the same numbers as a contiguous array `[layers, 2, heads, tokens, dim]`."""
        return StridedBlock(address, pitch=num_tokens * self.token_bytes, rows=self.heads)

    def extent(self, num_tokens: int) -> Extent:
        return Extent(width=num_tokens * self.token_bytes, rows=self.heads, slices=2 * self.layers)
