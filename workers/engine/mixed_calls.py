"""The calls of an engine that mixes: `prefill`, `decode` and `mixed`, checked, are one computation."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from workers.engine import DecodeRow, EngineInfo, PrefillChunk
from workers.engine.calls import check_decode, check_mixed, check_prefill


class MixedCalls(ABC):
    """Three calls of `MixingEngine` over one `_compute`."""

    _info: EngineInfo

    @property
    def info(self) -> EngineInfo:
        return self._info

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        check_prefill(self._info, chunks)
        return self._compute(chunks, ())[0]

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        check_decode(self._info, rows)
        return self._compute((), rows)[1]

    def mixed(self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> tuple[list[int | None], list[int]]:
        check_mixed(self._info, chunks, rows)
        return self._compute(chunks, rows)

    @abstractmethod
    def _compute(self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> tuple[list[int | None], list[int]]:
        """Compute chunks and decode rows that were checked; return the tokens of both."""
