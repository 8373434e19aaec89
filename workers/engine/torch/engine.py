"""The torch engine: Replyline's own decoder, on a GPU without TensorRT, or on the CPU as the reference.

A decode step has one of a few shapes: 1, 2, 4, … rows, with attention over 256, 512, … positions
(`workers/engine/torch/slots.py`). On a GPU each shape is recorded as a CUDA graph while loading, with inputs, outputs
and KV at fixed addresses; a prefill can have any shape and is enqueued directly. On a CPU there are no graphs.

The rest is shared with the TensorRT engine: KV copies on a separate stream (`device/kv.py`), and tokens from logits
with little copying (`device/tokens.py`), here on torch's memory and streams (`torch/device.py`).
"""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from shared.model.folder import Manifest
from workers.engine import DecodeRow, EngineInfo, PrefillChunk
from workers.engine.calls import check_decode, check_import, check_prefill, check_range
from workers.engine.device import Staging
from workers.engine.device.kv import DeviceKv
from workers.engine.device.sampling import BLOCK_TOKENS
from workers.engine.device.slots import SlotLayout, batch_size_for, batch_sizes
from workers.engine.device.tokens import TokenReader
from workers.engine.kv_layout import kv_dtype
from workers.engine.torch.decoder import TorchDecoder
from workers.engine.torch.device import Tensors, TorchDevice, TorchExecution, computing
from workers.engine.torch.slots import MAX_PREFILL_ROWS, capacity_for, span_of, spans_for
from workers.engine.torch.weights import DTYPES, DecoderWeights

_SAMPLER_TYPES: Final = {
    "logits": torch.float32,
    "temperature": torch.float32,
    "candidate_logits": torch.float32,
    "candidate_ids": torch.int64,
    "block_mass": torch.float32,
}
_STEP_TYPES: Final = {
    "input_ids": torch.int64,
    "past_lengths": torch.int64,
    "logits": torch.float32,
    "token_ids": torch.int64,
    "peaks": torch.float32,
}


class TorchEngine:
    """`Engine` of `weights` on `device`, in the manifest's precision.

    All memory besides the weights is allocated at the start: KV, buffers, and on a GPU the graphs and the workspace of
    the largest prefill, `max_prefill_rows` of `prefill_tokens` each, which torch keeps.

    Raises:
        EngineError: the device fails.
        ValueError: `max_length` exceeds the model's positions.
    """

    def __init__(
        self,
        manifest: Manifest,
        weights: DecoderWeights,
        device: TorchDevice,
        *,
        num_slots: int,
        max_length: int,
        max_prefill_rows: int = MAX_PREFILL_ROWS,
        prefill_tokens: int = 256,
    ) -> None:
        a = manifest.architecture
        if not 1 <= max_length <= a.max_positions:
            raise ValueError(f"max_length must be 1 to {a.max_positions}, got {max_length}")
        self._device = device
        self._info = EngineInfo.from_manifest(
            manifest,
            name="torch",
            device=device.kind,
            num_slots=num_slots,
            max_length=max_length,
            max_prefill_rows=min(max_prefill_rows, num_slots),
            kv_dtype=kv_dtype(manifest),
        )
        self._batch_sizes = batch_sizes(num_slots)
        self._capacity = capacity_for(max_length)
        self._spans = spans_for(self._capacity)
        with computing():
            self._decoder = TorchDecoder.for_weights(a, weights, self._capacity)
            self._take_memory(a.vocab_size)
            # the largest first, since the others can reuse its memory
            self._steps = {
                (rows, span): self._record(rows, span)
                for rows in reversed(self._batch_sizes)
                for span in reversed(self._spans)
            }
            if device.records:
                width = min(prefill_tokens, max_length)
                self._compute.run(self._prefill_execution(0, self._info.max_prefill_rows, width, 0))
                self._compute.synchronize()

    @property
    def info(self) -> EngineInfo:
        return self._info

    def prefill(self, chunks: Sequence[PrefillChunk]) -> list[int | None]:
        check_prefill(self._info, chunks)
        first, rows = chunks[0].slot, len(chunks)
        width = max(len(chunk.token_ids) for chunk in chunks)
        host = self._prefill_inputs.host
        token_ids = host["input_ids"][: rows * width].reshape(rows, width)
        token_ids[...] = 0
        for row, chunk in enumerate(chunks):
            token_ids[row, : len(chunk.token_ids)] = chunk.token_ids
        host["last_index"][:rows] = [len(chunk.token_ids) - 1 for chunk in chunks]
        with computing():
            self._kv.await_imports(range(first, first + rows))
            self._send_prefill(rows * width)
            self._compute.run(self._prefill_execution(first, rows, width, chunks[0].past))
            self._reader.fetch()
            self._compute.synchronize()
            lengths = [chunk.past + len(chunk.token_ids) for chunk in chunks]
            return self._reader.tokens([chunk.sampling for chunk in chunks], lengths)

    def decode(self, rows: Sequence[DecodeRow]) -> list[int]:
        check_decode(self._info, rows)
        size = batch_size_for(len(rows), self._batch_sizes)
        span = span_of(max(row.past for row in rows) + 1, self._spans)
        host = self._decode_inputs.host
        host["input_ids"][: len(rows)] = [row.token_id for row in rows]
        host["past_lengths"][: len(rows)] = [row.past for row in rows]
        self._pad(len(rows), size)
        execution, replay = self._steps[size, span]
        with computing():
            self._kv.await_imports(range(len(rows)))
            self._decode_inputs.send(self._compute)
            if replay is None:
                self._compute.run(execution)
            else:
                self._compute.launch(replay)
            self._reader.fetch()
            self._compute.synchronize()
            tokens = self._reader.tokens([row.sampling for row in rows], [row.past + 1 for row in rows])
        return [token for token in tokens if token is not None]

    def move(self, *, source: int, target: int, length: int) -> None:
        check_range(self._info, source, 0, length)
        check_range(self._info, target, 0, length)
        with computing():
            self._kv.move(source=source, target=target, length=length)

    def export_kv(self, *, slot: int, start: int, stop: int) -> NDArray[Any]:
        check_range(self._info, slot, start, stop)
        with computing():
            return self._kv.export(slot=slot, start=start, stop=stop)

    def import_kv(self, *, slot: int, start: int, values: NDArray[Any]) -> None:
        check_import(self._info, slot, start, values)
        with computing():
            self._kv.import_(slot=slot, start=start, values=values)

    def close(self) -> None:
        self._steps.clear()
        for held in ("_decoder", "_slots_kv"):
            vars(self).pop(held, None)
        self._device.close()

    def _take_memory(self, vocab_size: int) -> None:
        device, info = self._device, self._info
        layout = info.kv_layout
        slots = SlotLayout.for_kv(layout, slots=info.num_slots, capacity=self._capacity)
        self._compute = device.open_stream()
        self._kv = DeviceKv(device, slots, layout, self._compute)
        shape = (layout.layers, 2, info.num_slots, layout.heads, self._capacity, layout.dim)
        self._slots_kv = device.tensor(self._kv.base, shape, DTYPES[info.precision])
        sampler = TorchExecution(device, _SAMPLER_TYPES, _find_parts)
        self._reader = TokenReader(device, self._compute, sampler, max_rows=info.num_slots, vocab_size=vocab_size)
        most = info.max_prefill_rows
        self._prefill_inputs = Staging(
            device, {"last_index": ((most,), np.int64), "input_ids": ((most * info.max_length,), np.int64)}
        )
        rows = info.num_slots
        self._decode_inputs = Staging(device, {"input_ids": ((rows,), np.int64), "past_lengths": ((rows,), np.int64)})

    def _record(self, rows: int, span: int) -> tuple[TorchExecution, Any]:
        """Return a batch size's bound step, and its recording if the device supports it."""

        def work(tensors: Tensors) -> None:
            logits = self._decoder.decode(self._slots_kv, tensors["input_ids"], tensors["past_lengths"], span)
            _put(logits, tensors)

        execution = TorchExecution(self._device, _STEP_TYPES, work)
        for name, address in self._decode_inputs.addresses.items():
            execution.bind(name, address, (rows,))
        self._reader.bind(execution, rows)
        if not self._device.records:
            return execution, None
        # Libraries do extra work at the first run of a shape, which must not be recorded.
        self._pad(0, rows)
        self._decode_inputs.send(self._compute)
        self._compute.run(execution)
        self._compute.synchronize()
        return execution, self._compute.capture(lambda: self._compute.run(execution))

    def _prefill_execution(self, first_slot: int, rows: int, width: int, past: int) -> TorchExecution:
        inputs = self._prefill_inputs.addresses
        token_ids = self._device.tensor(inputs["input_ids"], (rows, width), torch.int64)
        last = self._device.tensor(inputs["last_index"], (rows,), torch.int64)
        kv = self._slots_kv[:, :, first_slot : first_slot + rows]

        def work(tensors: Tensors) -> None:
            _put(self._decoder.prefill(kv, token_ids, past, last), tensors)

        execution = TorchExecution(self._device, _STEP_TYPES, work)
        self._reader.bind(execution, rows)
        return execution

    def _send_prefill(self, num_tokens: int) -> None:
        inputs = self._prefill_inputs
        num_bytes = inputs.offsets["input_ids"] + num_tokens * np.dtype(np.int64).itemsize
        self._compute.copy(inputs.device_address, inputs.host_address, num_bytes)

    def _pad(self, start: int, stop: int) -> None:
        """Write the token of padding rows after every sequence, since their slots may be in use."""
        self._decode_inputs.host["past_lengths"][start:stop] = self._capacity - 1


def _put(logits: torch.Tensor, tensors: Tensors) -> None:
    """Write logits, each row's largest one and the smallest token that has it to the reader's arrays."""
    tensors["logits"].copy_(logits)
    largest, token_ids = logits.max(1, keepdim=True)
    tensors["peaks"].copy_(largest)
    tensors["token_ids"].copy_(token_ids[:, 0])


def _find_parts(tensors: Tensors) -> None:
    """Compute what the graph of `workers/graph/sampler.py` computes: the largest logits, and the mass of each block
    of ids."""
    logits = tensors["logits"]
    candidates = tensors["candidate_logits"]
    largest, token_ids = logits.topk(candidates.shape[1], dim=1)
    candidates.copy_(largest)
    tensors["candidate_ids"].copy_(token_ids)
    weights = ((logits - largest[:, :1]) / tensors["temperature"]).exp()
    mass = tensors["block_mass"]
    padded = torch.nn.functional.pad(weights, (0, mass.shape[1] * BLOCK_TOKENS - weights.shape[1]))
    mass.copy_(padded.view(*mass.shape, BLOCK_TOKENS).sum(2))
