"""The GPU engine: the graph of `workers.graph.tensorrt`, built by TensorRT, on slots that never move.

A decode step has one of a few batch sizes (1, 2, 4, … slots). Each has its own execution with inputs, outputs, copies
and KV at fixed addresses, so that a whole step is recorded once and then launched as one CUDA graph; a prefill can have
any shape and is enqueued directly.

All code that needs a GPU is behind `Device`, so that this file runs anywhere.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from shared.model.folder import ModelFolder
from workers.engine import DecodeRow, EngineInfo, PrefillChunk
from workers.engine.calls import check_decode, check_import, check_prefill, check_range
from workers.engine.device import Device, Execution, Replay, Staging
from workers.engine.device.kv import DeviceKv
from workers.engine.device.slots import SlotLayout, batch_size_for, batch_sizes
from workers.engine.device.tokens import TokenReader
from workers.engine.kv_layout import kv_dtype
from workers.engine.tensorrt.plans import DECODE, PREFILL, PlanShapes


class _Programs:
    """The two loaded plans. Their executions run one after another on one stream, so they share one workspace."""

    def __init__(self, device: Device, decoder: bytes, sampler: bytes) -> None:
        self._decoder, self._sampler = device.load(decoder), device.load(sampler)
        self._workspace = device.allocate(max(self._decoder.workspace_bytes, self._sampler.workspace_bytes))

    def open_prefill(self) -> Execution:
        return self._decoder.open(PREFILL, self._workspace, one_shape=False)

    def open_decode(self) -> Execution:
        """Return the execution of one batch size."""
        return self._decoder.open(DECODE, self._workspace, one_shape=True)

    def open_sampler(self) -> Execution:
        return self._sampler.open(0, self._workspace, one_shape=False)


class TensorrtEngine:
    """`Engine` on a `Device` with plans that were built for `shapes`. All device memory is allocated at the start.

    Raises:
        EngineError: the device fails.
        ValueError: the slots of `shapes` are too short for `max_length` tokens and one of padding.
    """

    def __init__(
        self,
        folder: ModelFolder,
        device: Device,
        *,
        decoder: bytes,
        sampler: bytes,
        shapes: PlanShapes,
        max_length: int,
        name: str,
    ) -> None:
        if not 1 <= max_length < shapes.capacity:
            raise ValueError(f"max_length must be 1 to {shapes.capacity - 1}, got {max_length}")
        self._device = device
        self._shapes = shapes
        self._info = EngineInfo.from_manifest(
            folder.manifest,
            name=name,
            device=device.kind,
            num_slots=shapes.num_slots,
            max_length=max_length,
            max_prefill_rows=shapes.prefill_rows,
            kv_dtype=kv_dtype(folder.manifest),
        )
        layout = self._info.kv_layout
        self._slots = SlotLayout.for_kv(layout, slots=shapes.num_slots, capacity=shapes.capacity)
        self._compute = device.open_stream()
        self._programs = programs = _Programs(device, decoder, sampler)
        self._kv = DeviceKv(device, self._slots, layout, self._compute)
        vocab_size, finding = folder.manifest.architecture.vocab_size, programs.open_sampler()
        self._reader = TokenReader(device, self._compute, finding, max_rows=shapes.num_slots, vocab_size=vocab_size)
        self._prefill_inputs = Staging(device, _inputs(shapes.prefill_rows, shapes.prefill_tokens))
        self._prefill_execution = programs.open_prefill()
        self._decode_inputs = Staging(device, _inputs(shapes.num_slots, 1))
        self._batch_sizes = batch_sizes(shapes.num_slots)
        self._steps = {rows: self._record(programs.open_decode(), rows) for rows in self._batch_sizes}

    @property
    def info(self) -> EngineInfo:
        return self._info

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        check_prefill(self._info, chunks)
        if max(len(chunk.token_ids) for chunk in chunks) <= self._shapes.prefill_tokens:
            return self._prefill(chunks)
        tokens: list[int | None] = []
        for chunk in chunks:
            tokens.append(None)
            for piece in _pieces(chunk, self._shapes.prefill_tokens):
                tokens[-1:] = self._prefill([piece])
        return tokens

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        check_decode(self._info, rows)
        self._kv.await_imports(range(len(rows)))
        size = batch_size_for(len(rows), self._batch_sizes)
        host = self._decode_inputs.host
        host["input_ids"][: len(rows)] = [row.token_id for row in rows]
        host["past_lengths"][: len(rows)] = [row.past for row in rows]
        self._pad(len(rows), size)
        execution, replay = self._steps[size]
        if replay is None:
            self._enqueue_decode(execution)
        else:
            self._compute.launch(replay)
        self._compute.synchronize()
        tokens = self._reader.tokens([row.sampling for row in rows], [row.past + 1 for row in rows])
        return [token for token in tokens if token is not None]

    def move(self, *, source: int, target: int, length: int) -> None:
        check_range(self._info, source, 0, length)
        check_range(self._info, target, 0, length)
        self._kv.move(source=source, target=target, length=length)

    def export_kv(self, *, slot: int, start: int, stop: int) -> NDArray[Any]:
        check_range(self._info, slot, start, stop)
        return self._kv.export(slot=slot, start=start, stop=stop)

    def import_kv(self, *, slot: int, start: int, values: NDArray[Any]) -> None:
        check_import(self._info, slot, start, values)
        self._kv.import_(slot=slot, start=start, values=values)

    def close(self) -> None:
        self._steps.clear()
        self._device.close()

    def _prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        """Compute chunks of at most `prefill_tokens` each."""
        first, rows = chunks[0].slot, len(chunks)
        width = max(len(chunk.token_ids) for chunk in chunks)
        self._kv.await_imports(range(first, first + rows))
        host = self._prefill_inputs.host
        token_ids = host["input_ids"][: rows * width].reshape(rows, width)
        token_ids[...] = 0
        for row, chunk in enumerate(chunks):
            token_ids[row, : len(chunk.token_ids)] = chunk.token_ids
        host["last_index"][:rows] = [len(chunk.token_ids) - 1 for chunk in chunks]
        host["past_lengths"][:rows] = [chunk.past for chunk in chunks]
        self._prefill_inputs.send(self._compute)
        self._bind(self._prefill_execution, self._prefill_inputs, first, rows, width)
        self._compute.run(self._prefill_execution)
        self._reader.fetch()
        self._compute.synchronize()
        lengths = [chunk.past + len(chunk.token_ids) for chunk in chunks]
        return self._reader.tokens([chunk.sampling for chunk in chunks], lengths)

    def _record(self, execution: Execution, rows: int) -> tuple[Execution, Replay | None]:
        """Bind a batch size's execution, and record its step if the device supports it."""
        self._bind(execution, self._decode_inputs, 0, rows, 1)
        self._pad(0, rows)
        # TensorRT defers work for a new shape to the first run, which must not be recorded.
        self._enqueue_decode(execution)
        self._compute.synchronize()
        return execution, self._compute.capture(lambda: self._enqueue_decode(execution))

    def _enqueue_decode(self, execution: Execution) -> None:
        self._decode_inputs.send(self._compute)
        self._compute.run(execution)
        self._reader.fetch()

    def _pad(self, start: int, stop: int) -> None:
        """Write the token of padding rows after every sequence, since their slots may be in use."""
        self._decode_inputs.host["past_lengths"][start:stop] = self._slots.capacity - 1

    def _bind(self, execution: Execution, inputs: Staging, first_slot: int, rows: int, width: int) -> None:
        execution.bind("input_ids", inputs.addresses["input_ids"], (rows, width))
        execution.bind("last_index", inputs.addresses["last_index"], (rows, 1))
        execution.bind("past_lengths", inputs.addresses["past_lengths"], (rows,))
        shape = self._slots.shape(rows)
        for past, present, address in self._slots.caches(self._kv.base, first_slot):
            execution.bind(past, address, shape)
            execution.bind(present, address, shape)
        self._reader.bind(execution, rows)


def _inputs(rows: int, tokens: int) -> dict[str, tuple[tuple[int, ...], Any]]:
    """Return arrays for up to `rows` sequences of up to `tokens` new tokens; every step uses them with its own
    shape."""
    return {
        "input_ids": ((rows * tokens,), np.int64),
        "last_index": ((rows,), np.int64),
        "past_lengths": ((rows,), np.int64),
    }


def _pieces(chunk: PrefillChunk, num_tokens: int) -> Iterator[PrefillChunk]:
    """Yield a chunk in parts of at most `num_tokens`; the last part samples."""
    for start in range(0, len(chunk.token_ids), num_tokens):
        token_ids = chunk.token_ids[start : start + num_tokens]
        last = start + len(token_ids) == len(chunk.token_ids)
        yield PrefillChunk(
            slot=chunk.slot, past=chunk.past + start, token_ids=token_ids, sampling=chunk.sampling if last else None
        )
