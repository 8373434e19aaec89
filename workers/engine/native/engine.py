"""The native engine: `Engine` on the compiled library.

One call of the library computes a step of any content, with at most `max_step_tokens` rows: longer prompts are computed
in several pieces, which does not change the tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from shared.errors import EngineError
from shared.model.folder import ModelFolder
from workers.engine import DecodeRow, EngineInfo, PrefillChunk, Sampling
from workers.engine.calls import MixedCalls, check_import, check_range
from workers.engine.kv_layout import BFLOAT16
from workers.engine.native.library import Library, NativeConfig, NativeWeights, StepProfile, Take
from workers.engine.sampling import sample

_KV_DTYPE: Final = np.dtype(BFLOAT16)
_CAPACITY_MULTIPLE: Final = 32
_MAX_STEP_TOKENS: Final = 512
_Wanted = tuple[int, Sampling, int]  # the row of the logits, how to sample, the new token's position


@dataclass(frozen=True, slots=True)
class _Outputs:
    """The output arrays of a step, with one row for each sampled token: its logits, the best token and that token's
    logit."""

    logits: NDArray[np.float32]
    best: NDArray[np.int32]
    peaks: NDArray[np.float32]

    @classmethod
    def allocate(cls, num_rows: int, stride: int) -> Self:
        return cls(
            np.zeros((num_rows, stride), np.float32), np.zeros(num_rows, np.int32), np.zeros(num_rows, np.float32)
        )

    @property
    def addresses(self) -> tuple[int, int, int]:
        return self.logits.ctypes.data, self.best.ctypes.data, self.peaks.ctypes.data


class NativeEngine(MixedCalls):
    """`Engine` that computes steps with `library` on `threads` threads.

    The KV of all slots is reserved at the start; the operating system provides its pages when they are first written.

    Raises:
        ModelError: the folder has no valid model.native.
        EngineError: there is not enough memory.
        ValueError: `max_length` exceeds the model's positions.
    """

    def __init__(
        self,
        folder: ModelFolder,
        library: Library,
        *,
        num_slots: int,
        max_length: int,
        threads: int,
        max_prefill_rows: int = 8,
    ) -> None:
        a = folder.manifest.architecture
        if not 1 <= max_length <= a.max_positions:
            raise ValueError(f"max_length must be 1 to {a.max_positions}, got {max_length}")
        capacity = -(-max_length // _CAPACITY_MULTIPLE) * _CAPACITY_MULTIPLE
        self._functions = library.functions
        self._weights = NativeWeights.map(folder, capacity)
        config = NativeConfig.for_model(
            a,
            slots=num_slots,
            capacity=capacity,
            max_step_tokens=_MAX_STEP_TOKENS,
            threads=threads,
            q4=self._weights.form == "q4",
        )
        self._handle: int | None = library.open(config, self._weights.addresses)
        self._outputs = _Outputs.allocate(num_slots, self._functions.native_stride(self._handle))
        self._info = EngineInfo.from_manifest(
            folder.manifest,
            name="native",
            device="cpu",
            num_slots=num_slots,
            max_length=max_length,
            max_prefill_rows=min(max_prefill_rows, num_slots),
            kv_dtype=_KV_DTYPE,
            mixes=True,
            kernel=library.kernel,
        )
        self._vocabulary = a.vocab_size
        self._profile: StepProfile | None = None

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits `[slots, vocabulary]` of the last step's sampled rows, valid until the next step."""
        return self._outputs.logits[:, : self._vocabulary]

    def profile(self, take: Take) -> None:
        """Call `take` after each following step with the duration of its phases."""
        self._profile = StepProfile(take)
        self._functions.native_profile(self._handle, self._profile.address)

    def move(self, *, source: int, target: int, length: int) -> None:
        check_range(self._info, source, 0, length)
        check_range(self._info, target, 0, length)
        self._functions.native_move(self._handle, source, target, length)

    def export_kv(self, *, slot: int, start: int, stop: int) -> NDArray[Any]:
        check_range(self._info, slot, start, stop)
        values = np.empty(self._info.kv_layout.shape(stop - start), _KV_DTYPE)
        self._functions.native_export(self._handle, slot, start, stop, values.ctypes.data)
        return values

    def import_kv(self, *, slot: int, start: int, values: NDArray[Any]) -> None:
        num_tokens = check_import(self._info, slot, start, values)
        values = np.ascontiguousarray(values)
        if self._functions.native_import(self._handle, slot, start, start + num_tokens, values.ctypes.data):
            raise ValueError("KV holds numbers that are not finite")

    def close(self) -> None:
        if self._handle is not None:
            self._functions.native_close(self._handle)
        self._handle = None

    def _compute(self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]) -> tuple[list[int | None], list[int]]:
        """Compute decode rows and chunks, in pieces of at most one step; return the tokens of both."""
        ids = [row.token_id for row in rows]
        slots = [row.slot for row in rows]
        positions = [row.past for row in rows]
        wanted: list[_Wanted] = [(at, row.sampling, row.past + 1) for at, row in enumerate(rows)]
        for chunk in chunks:
            length = chunk.past + len(chunk.token_ids)
            ids += chunk.token_ids
            slots += [chunk.slot] * len(chunk.token_ids)
            positions += range(chunk.past, length)
            if chunk.sampling is not None:
                wanted.append((len(ids) - 1, chunk.sampling, length))
        steps = np.array((ids, slots, positions), np.int32)
        tokens: list[int] = []
        for start in range(0, len(ids), _MAX_STEP_TOKENS):
            part = [(at - start, how, place) for at, how, place in wanted if start <= at < start + _MAX_STEP_TOKENS]
            tokens += self._step(np.ascontiguousarray(steps[:, start : start + _MAX_STEP_TOKENS]), part)
        sampled = iter(tokens[len(rows) :])
        return [None if chunk.sampling is None else next(sampled) for chunk in chunks], tokens[: len(rows)]

    def _step(self, step: NDArray[np.int32], wanted: Sequence[_Wanted]) -> list[int]:
        """Compute one step of rows (ids, slots, positions); return a token for each sampled row."""
        rows = np.array([at for at, _, _ in wanted], np.int32)
        ids, slots, positions = (part.ctypes.data for part in step)
        outputs = self._outputs
        if self._functions.native_step(
            self._handle, step.shape[1], ids, slots, positions, len(rows), rows.ctypes.data, *outputs.addresses
        ):
            raise ValueError("a token of the step is outside the vocabulary")
        if self._profile is not None:
            self._profile.end_step(step.shape[1], int(step[2].max()) + 1)
        if not np.isfinite(outputs.peaks[: len(rows)]).all():
            raise EngineError("the engine computed logits that are not finite; restart the worker")
        tokens: list[int] = outputs.best[: len(rows)].tolist()
        for row, (_, sampling, position) in enumerate(wanted):
            if sampling.temperature > 0:
                [tokens[row]] = sample(self.logits[row : row + 1], [sampling], [position])
        return tokens
