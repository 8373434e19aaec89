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
from workers.engine import MAX_PROPOSED, DecodeRow, EngineInfo, PrefillChunk, Sampling
from workers.engine.calls import MixedCalls, check_import, check_range, follows
from workers.engine.kv_layout import BFLOAT16
from workers.engine.native.library import Library, NativeConfig, NativeWeights, StepProfile, Take
from workers.engine.sampling import sample

_KV_DTYPE: Final = np.dtype(BFLOAT16)
_CAPACITY_MULTIPLE: Final = 32
_MAX_STEP_TOKENS: Final = 512
# The row of the logits, how to sample, the new token's position, and the token that must have been sampled before it.
_Wanted = tuple[int, Sampling, int, int | None]


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
        self._outputs = _Outputs.allocate(num_slots + MAX_PROPOSED, self._functions.native_stride(self._handle))
        self._info = EngineInfo.from_manifest(
            folder.manifest,
            name="native",
            device="cpu",
            num_slots=num_slots,
            max_length=max_length,
            max_prefill_rows=min(max_prefill_rows, num_slots),
            kv_dtype=_KV_DTYPE,
            mixes=True,
            verifies=True,
            kernel=library.kernel,
        )
        self._vocabulary = a.vocab_size
        self._profile: StepProfile | None = None

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits `[slots + MAX_PROPOSED, vocabulary]` of the last step's sampled places, valid until the next step."""
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

    def _compute(
        self, chunks: Sequence[PrefillChunk], rows: Sequence[DecodeRow]
    ) -> tuple[list[int | None], list[list[int]]]:
        """Compute decode rows and chunks, in pieces of at most one step; return the tokens of both."""
        ids: list[int] = []
        slots: list[int] = []
        positions: list[int] = []
        wanted: list[_Wanted] = []
        for row in rows:
            for place, proposed in enumerate((None, *row.proposed), row.past):
                wanted.append((len(ids), row.sampling, place + 1, proposed))
                ids.append(row.token_id if proposed is None else proposed)
                slots.append(row.slot)
                positions.append(place)
        for chunk in chunks:
            length = chunk.past + len(chunk.token_ids)
            ids += chunk.token_ids
            slots += [chunk.slot] * len(chunk.token_ids)
            positions += range(chunk.past, length)
            if chunk.sampling is not None:
                wanted.append((len(ids) - 1, chunk.sampling, length, None))
        steps = np.array((ids, slots, positions), np.int32)
        tokens: list[int | None] = []
        for start in range(0, len(ids), _MAX_STEP_TOKENS):
            stop = start + _MAX_STEP_TOKENS
            part = [(at - start, how, place, before) for at, how, place, before in wanted if start <= at < stop]
            self._step(np.ascontiguousarray(steps[:, start:stop]), part, tokens)
        sampled = iter(tokens)
        decoded = [[next(sampled) for _ in range(1 + len(row.proposed))] for row in rows]
        prefilled = [None if chunk.sampling is None else next(sampled) for chunk in chunks]
        return prefilled, [[token for token in each if token is not None] for each in decoded]

    def _step(self, step: NDArray[np.int32], wanted: Sequence[_Wanted], tokens: list[int | None]) -> None:
        """Compute one step of rows (ids, slots, positions); append a token for each wanted place, or None for one that
        follows a rejected token."""
        rows = np.array([each[0] for each in wanted], np.int32)
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
        best: list[int] = outputs.best[: len(rows)].tolist()
        for row, (_, sampling, position, before) in enumerate(wanted):
            if not follows(tokens, before):
                tokens.append(None)
            elif sampling.temperature > 0:
                tokens += sample(self.logits[row : row + 1], [sampling], [position])
            else:
                tokens.append(best[row])
