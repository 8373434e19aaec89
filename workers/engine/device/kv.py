"""The KV of all slots on the device, and its copies to and from the host.

These copies run on a separate stream. An import returns once its numbers are in a pinned buffer, and the device copies
them while other slots are computed. An export waits only for its own copy.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from workers.engine.device import BareDevice, Stream
from workers.engine.device.slots import SlotLayout
from workers.engine.kv_layout import KvLayout

# Tokens in one copy; limits the pinned buffer regardless of a slot's length.
_STAGED_TOKENS: Final = 256
_NUM_IMPORT_STAGES: Final = 2


class DeviceKv:
    """Owns the KV. `compute` is the stream on which the engine reads and writes slots."""

    def __init__(self, device: BareDevice, slots: SlotLayout, layout: KvLayout, compute: Stream) -> None:
        self.base = device.allocate(slots.num_bytes)
        self._slots = slots
        self._layout = layout
        self._compute = compute
        self._copies = device.open_stream()
        stage_bytes = min(_STAGED_TOKENS, slots.capacity) * layout.bytes_per_token
        self._export_stage = device.allocate_pinned(stage_bytes)
        self._import_stages = [device.allocate_pinned(stage_bytes) for _ in range(_NUM_IMPORT_STAGES)]
        self._num_staged = 0  # imports since the last wait for the copies
        self._importing: set[int] = set()  # slots whose import may not be complete

    def await_imports(self, slots: Sequence[int]) -> None:
        """Make the following computation wait for imports into any of `slots`."""
        if not self._importing.isdisjoint(slots):
            self._compute.wait_for(self._copies)
            self._importing.clear()

    def move(self, *, source: int, target: int, length: int) -> None:
        """Copy a slot's first tokens to another slot."""
        if source == target or length == 0:
            return
        self.await_imports((source, target))
        self._compute.copy_block(
            self._slots.block(self.base, target, 0),
            self._slots.block(self.base, source, 0),
            self._slots.extent(length),
        )

    def export(self, *, slot: int, start: int, stop: int) -> NDArray[Any]:
        values: NDArray[Any] = np.empty(self._layout.shape(stop - start), self._layout.numpy_dtype)
        self._copies.wait_for(self._compute)
        for begin, end in _pieces(start, stop):
            count = end - begin
            staged = self._staged(self._export_stage, count)
            self._copies.copy_block(
                self._slots.dense_block(staged.ctypes.data, count),
                self._slots.block(self.base, slot, begin),
                self._slots.extent(count),
            )
            self._copies.synchronize()
            values[..., begin - start : end - start, :] = staged
        return values

    def import_(self, *, slot: int, start: int, values: NDArray[Any]) -> None:
        num_tokens = values.shape[3]
        if num_tokens == 0:
            return
        self._copies.wait_for(self._compute)
        for begin, end in _pieces(0, num_tokens):
            staged = self._staged(self._free_stage(), end - begin)
            staged[...] = values[..., begin:end, :]
            self._copies.copy_block(
                self._slots.block(self.base, slot, start + begin),
                self._slots.dense_block(staged.ctypes.data, end - begin),
                self._slots.extent(end - begin),
            )
        self._importing.add(slot)

    def _free_stage(self) -> NDArray[np.uint8]:
        """Return a pinned buffer that no copy is using."""
        if self._num_staged == len(self._import_stages):
            self._copies.synchronize()
            self._num_staged = 0
        self._num_staged += 1
        return self._import_stages[self._num_staged - 1]

    def _staged(self, stage: NDArray[np.uint8], num_tokens: int) -> NDArray[Any]:
        """Return a pinned buffer's part for `num_tokens`, as an array of numbers."""
        used = stage[: num_tokens * self._layout.bytes_per_token]
        return used.view(self._layout.numpy_dtype).reshape(self._layout.shape(num_tokens))


def _pieces(start: int, stop: int) -> Iterator[tuple[int, int]]:
    for begin in range(start, stop, _STAGED_TOKENS):
        yield begin, min(begin + _STAGED_TOKENS, stop)
