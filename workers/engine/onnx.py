"""The CPU engine: ONNX Runtime with the graph from `workers.graph`.

Keys and values are in one numpy array. The kernels append to it in place, because a view of consecutive slots is bound
as a layer's past and as its present. Creating a binding takes half a millisecond for the 120 tensors of a 30-layer
model, so there is one for each (first slot, number of rows), created at its first use.
"""

import math
import mmap
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from shared.errors import EngineError, ModelError
from shared.model.folder import REMEDY, ModelFolder
from workers.engine import DecodeRow, EngineInfo, PrefillChunk
from workers.engine.calls import check_decode, check_import, check_prefill, check_range
from workers.engine.sampling import sample

_DEVICE: Final = "cpu"


class OnnxEngine:
    """`Engine` on ONNX Runtime's CPU kernels.

    The KV of all slots is reserved at the start with a fixed size; the operating system provides its pages when they
    are first written.

    Args:
        threads: threads that compute a step together.
        spinning: threads busy-wait between steps, which is fastest and occupies their cores.
        profile: record every run, for `end_profile`.

    Raises:
        ModelError: the graph cannot be loaded.
        ValueError: `max_length` exceeds the model's positions.
    """

    def __init__(
        self,
        folder: ModelFolder,
        *,
        num_slots: int,
        max_length: int,
        threads: int,
        spinning: bool = True,
        max_prefill_rows: int = 8,
        profile: Path | None = None,
    ) -> None:
        architecture = folder.manifest.architecture
        if not 1 <= max_length <= architecture.max_positions:
            raise ValueError(f"max_length must be 1 to {architecture.max_positions}, got {max_length}")
        self._session = _load(folder, threads, spinning=spinning, profile=profile)
        # layer and part are the outermost axes, so that each bound view is contiguous
        slots = (num_slots, architecture.num_kv_heads, max_length, architecture.head_dim)
        self._kv = _reserve((architecture.num_layers, 2, *slots))
        self._logits: NDArray[np.float32] = np.empty((num_slots, architecture.vocab_size), np.float32)
        self._bindings: dict[tuple[int, int], _Binding] = {}
        self._info = EngineInfo.from_manifest(
            folder.manifest,
            name="onnx",
            device="cpu",
            num_slots=num_slots,
            max_length=max_length,
            max_prefill_rows=min(max_prefill_rows, num_slots),
            kv_dtype=self._kv.dtype,
        )

    @property
    def info(self) -> EngineInfo:
        return self._info

    @property
    def logits(self) -> NDArray[np.float32]:
        """Logits `[slots, vocabulary]` of the last step's rows, valid until the next step."""
        return self._logits

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        check_prefill(self._info, chunks)
        width = max(len(chunk.token_ids) for chunk in chunks)
        token_ids = np.zeros((len(chunks), width), np.int64)
        for row, chunk in enumerate(chunks):
            token_ids[row, : len(chunk.token_ids)] = chunk.token_ids
        lengths = [chunk.past + len(chunk.token_ids) for chunk in chunks]
        last = [len(chunk.token_ids) - 1 for chunk in chunks]
        logits = self._run(chunks[0].slot, token_ids, lengths, last)
        wanted = [row for row, chunk in enumerate(chunks) if chunk.sampling is not None]
        samplings = [chunk.sampling for chunk in chunks if chunk.sampling is not None]
        sampled = sample(logits[wanted], samplings, [lengths[row] for row in wanted]) if wanted else []
        tokens: list[int | None] = [None] * len(chunks)
        for row, token in zip(wanted, sampled, strict=True):
            tokens[row] = token
        return tokens

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        check_decode(self._info, rows)
        token_ids = np.array([[row.token_id] for row in rows], np.int64)
        lengths = [row.past + 1 for row in rows]
        logits = self._run(0, token_ids, lengths, [0] * len(rows))
        return sample(logits, [row.sampling for row in rows], lengths)

    def move(self, *, source: int, target: int, length: int) -> None:
        check_range(self._info, source, 0, length)
        check_range(self._info, target, 0, length)
        self._kv[:, :, target, :, :length] = self._kv[:, :, source, :, :length]

    def export_kv(self, *, slot: int, start: int, stop: int) -> NDArray[np.float32]:
        check_range(self._info, slot, start, stop)
        return self._kv[:, :, slot, :, start:stop].copy()

    def import_kv(self, *, slot: int, start: int, values: NDArray[np.float32 | np.float16]) -> None:
        num_tokens = check_import(self._info, slot, start, values)
        self._kv[:, :, slot, :, start : start + num_tokens] = values

    def end_profile(self) -> Path:
        """End the recording and return its file in Chrome's trace format, whose name begins with `profile`."""
        return Path(self._session.end_profiling())

    def close(self) -> None:
        self._bindings.clear()
        self._session = None
        self._kv = np.empty((0, 2, 0, 0, 0, 0), np.float32)

    def _run(
        self, first_slot: int, token_ids: NDArray[np.int64], lengths: list[int], last: list[int]
    ) -> NDArray[np.float32]:
        """Add `token_ids` `[rows, T]` to the slots from `first_slot`.

        Args:
            first_slot: the first slot.
            token_ids: the new tokens.
            lengths: number of tokens in each slot after this.
            last: index of the token in each row after which logits are computed.

        Returns:
            The logits `[rows, vocabulary]`, valid until the next step.
        """
        key = (first_slot, len(token_ids))
        if key not in self._bindings:
            slots = slice(first_slot, first_slot + len(token_ids))
            self._bindings[key] = _Binding(self._session, self._kv[:, :, slots], self._logits[: len(token_ids)])
        binding = self._bindings[key]
        binding.set_step(token_ids, lengths, last)
        try:
            self._session.run_with_iobinding(binding.io)
        # ONNX Runtime raises RuntimeError and direct subclasses of Exception.
        except Exception as error:
            raise EngineError(f"ONNX Runtime failed ({error}); restart the worker") from error
        return binding.logits


class _Binding:
    """The session's inputs and outputs in memory for one range of slots. Keeps references to every array that it
    binds."""

    def __init__(self, session: Any, kv: NDArray[np.float32], logits: NDArray[np.float32]) -> None:
        """Bind `kv` `[layers, 2, rows, kv heads, max length, head dim]` and `logits` `[rows, vocabulary]`."""
        num_rows = len(logits)
        self.io = session.io_binding()
        self.logits = logits
        self._kv = kv
        self._token_ids: NDArray[np.int64] = np.empty((num_rows, 0), np.int64)
        self._last_index: NDArray[np.int64] = np.zeros((num_rows, 1), np.int64)
        self._seqlens: NDArray[np.int32] = np.zeros(num_rows, np.int32)
        self._total: NDArray[np.int32] = np.zeros((), np.int32)
        self._bind_input("last_index", self._last_index)
        self._bind_input("seqlens_k", self._seqlens)
        self._bind_input("total_sequence_length", self._total)
        self._bind_output("logits", logits)
        for layer, parts in enumerate(kv):
            for part, view in zip(("key", "value"), parts, strict=True):
                self._bind_input(f"past_{part}.{layer}", view)
                self._bind_output(f"present_{part}.{layer}", view)

    def set_step(self, token_ids: NDArray[np.int64], lengths: list[int], last: list[int]) -> None:
        """Set one step's small inputs."""
        if token_ids.shape != self._token_ids.shape:  # binding takes longer than copying
            self._token_ids = np.empty_like(token_ids)
            self._bind_input("input_ids", self._token_ids)
        self._token_ids[...] = token_ids
        self._last_index[:, 0] = last
        self._seqlens[:] = lengths
        self._seqlens -= 1
        self._total[...] = max(lengths)

    def _bind_input(self, name: str, array: NDArray[Any]) -> None:
        self.io.bind_input(name, _DEVICE, 0, array.dtype, array.shape, array.ctypes.data)

    def _bind_output(self, name: str, array: NDArray[Any]) -> None:
        self.io.bind_output(name, _DEVICE, 0, array.dtype, array.shape, array.ctypes.data)


def _reserve(shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return zeros that use memory only once they are written.

    np.zeros uses huge pages, so that a slot's first token would make all of it resident; small pages do not slow
    decoding.
    """
    pages = mmap.mmap(-1, math.prod(shape) * np.dtype(np.float32).itemsize)
    return np.frombuffer(pages, np.float32).reshape(shape)


def _load(folder: ModelFolder, threads: int, *, spinning: bool, profile: Path | None) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.add_session_config_entry("session.dynamic_block_base", "4")
    options.add_session_config_entry("session.intra_op.allow_spinning", "1" if spinning else "0")
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    try:
        return onnxruntime.InferenceSession(str(folder.graph_path), options, providers=["CPUExecutionProvider"])
    # ONNX Runtime raises RuntimeError and direct subclasses of Exception.
    except Exception as error:
        cause = " ".join(str(error).split())
        raise ModelError(f"ONNX Runtime cannot load {folder.graph_path} ({cause}); {REMEDY}") from error
