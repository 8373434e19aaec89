"""Argument checks that all engines share: an invalid call raises `ValueError` and changes nothing."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from workers.engine import MAX_PROPOSED, DecodeRow, EngineInfo, PrefillChunk


def check_prefill(info: EngineInfo, chunks: Sequence[PrefillChunk]) -> None:
    """Check for one chunk in any slot, or several chunks with an empty past for consecutive slots."""
    if not 1 <= len(chunks) <= info.max_prefill_rows:
        raise ValueError(f"prefill takes 1 to {info.max_prefill_rows} chunks, got {len(chunks)}")
    for offset, chunk in enumerate(chunks):
        _check_chunk(info, chunk)
        if chunk.slot != chunks[0].slot + offset:
            raise ValueError(f"slots of one prefill must be consecutive, got {[c.slot for c in chunks]}")
        if len(chunks) > 1 and chunk.past:
            raise ValueError(f"slot {chunk.slot} has a past of {chunk.past}: prefill it in a separate call")


def check_verify(info: EngineInfo, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> None:
    """Check as for a mixed call, and the rows' proposed tokens."""
    check_mixed(info, chunks, rows, max_proposed=MAX_PROPOSED)


def check_mixed(
    info: EngineInfo, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow], *, max_proposed: int = 0
) -> None:
    """Check for rows as in `decode`, and chunks for other slots, all different."""
    if rows:
        check_decode(info, rows, max_proposed=max_proposed)
    if len(chunks) > info.max_prefill_rows:
        raise ValueError(f"a step takes at most {info.max_prefill_rows} chunks, got {len(chunks)}")
    if not rows and not chunks:
        raise ValueError("a step without rows and chunks computes nothing")
    slots = [row.slot for row in rows] + [chunk.slot for chunk in chunks]
    if len({*slots}) < len(slots):
        raise ValueError(f"rows and chunks must be for different slots, got {slots}")
    for chunk in chunks:
        _check_chunk(info, chunk)


def check_decode(info: EngineInfo, rows: Sequence[DecodeRow], *, max_proposed: int = 0) -> None:
    """Check for slots 0 .. n-1 in order (any slots if the engine mixes), each with a past and room for one more
    token."""
    if not 1 <= len(rows) <= info.num_slots:
        raise ValueError(f"decode takes 1 to {info.num_slots} rows, got {len(rows)}")
    slots = [row.slot for row in rows]
    if info.mixes and len({*slots}) < len(slots):
        raise ValueError(f"decode takes each slot once, got {slots}")
    if not info.mixes and slots != list(range(len(rows))):
        raise ValueError(f"decode takes slots 0 to {len(rows) - 1} in order, got {slots}")
    for row in rows:
        if row.past < 1:
            raise ValueError(f"slot {row.slot} has no past: prefill it first")
        check_range(info, row.slot, row.past, row.past + 1 + len(row.proposed))
    if (proposed := sum([len(row.proposed) for row in rows])) > max_proposed:
        raise ValueError(f"this call takes at most {max_proposed} proposed tokens, got {proposed}")


def follows(tokens: Sequence[int | None], proposed: int | None) -> bool:
    """Return whether the token after the proposed one counts: the last of `tokens` is it, or nothing was proposed."""
    return proposed is None or tokens[-1] == proposed


def check_range(info: EngineInfo, slot: int, start: int, stop: int) -> None:
    """Check that tokens `start .. stop-1` of `slot` exist."""
    if not 0 <= slot < info.num_slots:
        raise ValueError(f"slot {slot} does not exist, there are {info.num_slots}")
    if not 0 <= start <= stop <= info.max_length:
        raise ValueError(f"tokens {start} to {stop} do not fit a slot of {info.max_length}")


def check_import(info: EngineInfo, slot: int, start: int, values: NDArray[Any]) -> int:
    """Return the number of tokens in `values`, which must fit `slot` from `start`. Floats may be in half precision."""
    layout = info.kv_layout
    num_tokens = values.shape[3] if values.ndim == len(layout.shape(0)) else 0
    halved = layout.numpy_dtype.kind == "f" and values.dtype == np.float16
    if values.shape != layout.shape(num_tokens) or not (halved or values.dtype == layout.numpy_dtype):
        raise ValueError(f"KV of shape {values.shape} and {values.dtype} is not of layout {layout.describe()}")
    check_range(info, slot, start, start + num_tokens)
    return num_tokens


def _check_chunk(info: EngineInfo, chunk: PrefillChunk) -> None:
    if not chunk.token_ids:
        raise ValueError(f"the chunk for slot {chunk.slot} is empty")
    check_range(info, chunk.slot, chunk.past, chunk.past + len(chunk.token_ids))


class MixedCalls(ABC):
    """The calls of `VerifyingEngine`, implemented with one `_compute`."""

    _info: EngineInfo

    @property
    def info(self) -> EngineInfo:
        return self._info

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        check_prefill(self._info, chunks)
        return self._compute(chunks, ())[0]

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        check_decode(self._info, rows)
        return [tokens[0] for tokens in self._compute((), rows)[1]]

    def mixed(self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> tuple[list[int | None], list[int]]:
        check_mixed(self._info, chunks, rows)
        prefilled, decoded = self._compute(chunks, rows)
        return prefilled, [tokens[0] for tokens in decoded]

    def verify(
        self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]
    ) -> tuple[list[int | None], list[list[int]]]:
        check_verify(self._info, chunks, rows)
        return self._compute(chunks, rows)

    @abstractmethod
    def _compute(
        self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]
    ) -> tuple[list[int | None], list[list[int]]]:
        """Compute checked chunks and decode rows; return the tokens of both."""
