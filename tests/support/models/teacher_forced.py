"""Logits of a given answer, token by token, by the CPU's engines and by the TensorRT dialects' graphs on the CPU.

All give logits before each token of the answer, given the prompt and the answer so far: `[answer, vocabulary]`.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime

from shared.model.folder import ModelFolder
from tests.support.models.native_library import native_library
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.native.engine import NativeEngine
from workers.engine.onnx import OnnxEngine
from workers.graph.sources.checkpoint import Checkpoint
from workers.graph.tensorrt import write_tensorrt_decoder


def engine_forced(folder: ModelFolder, prompt: Sequence[int], answer: Sequence[int]) -> np.ndarray:
    """By ONNX Runtime."""
    return _forced(OnnxEngine(folder, num_slots=1, max_length=64, threads=1, spinning=False), prompt, answer)


def native_forced(
    folder: ModelFolder, prompt: Sequence[int], answer: Sequence[int], kernel: str = "auto"
) -> np.ndarray:
    """By a kernel of the native engine."""
    return _forced(NativeEngine(folder, native_library(kernel), num_slots=1, max_length=64, threads=1), prompt, answer)


def _forced(engine: OnnxEngine | NativeEngine, prompt: Sequence[int], answer: Sequence[int]) -> np.ndarray:
    greedy = Sampling()
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=greedy)])
    logits = [engine.logits[0].copy()]
    for done, token in enumerate(answer[:-1]):
        engine.decode([DecodeRow(slot=0, past=len(prompt) + done, token_id=token, sampling=greedy)])
        logits.append(engine.logits[0].copy())
    engine.close()
    return np.array(logits)


class GraphSlots:
    """TensorRT's graph on the CPU, its KV written in place.

    `dtype` is that of products, KV and attention; `fill` is the slots' content before their first use.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        folder: Path,
        *,
        dtype: str,
        num_slots: int = 1,
        max_length: int = 64,
        fill: float = 0.0,
    ) -> None:
        folder.mkdir(exist_ok=True)
        a = checkpoint.architecture
        write_tensorrt_decoder(
            checkpoint,
            folder,
            max_length=max_length,
            dtype=np.dtype(dtype),
            progress=lambda _fraction: None,
        )
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(
            str(folder / "model.onnx"), options, providers=["CPUExecutionProvider"]
        )
        self.kv = np.full((a.num_layers, 2, num_slots, a.num_kv_heads, max_length, a.head_dim), fill, dtype)
        self._vocab_size = a.vocab_size

    def step(self, rows: Sequence[Sequence[int]], past: Sequence[int]) -> np.ndarray:
        """Append `rows` to the first slots, which hold `past` tokens; the logits `[rows, vocabulary]` of the last."""
        token_ids = np.zeros((len(rows), max(map(len, rows))), np.int64)
        for at, row in enumerate(rows):
            token_ids[at, : len(row)] = row
        logits = np.empty((len(rows), self._vocab_size), np.float32)
        given = {
            "input_ids": token_ids,
            "last_index": np.array([[len(row) - 1] for row in rows], np.int64),
            "past_lengths": np.array(past, np.int64),
        }
        binding = self._session.io_binding()
        for name, array in given.items():
            bind(binding.bind_input, name, array)
        bind(binding.bind_output, "logits", logits)
        past_kv = self.kv[:, :, : len(rows)]
        for layer in range(len(past_kv)):
            for place, part in enumerate(("key", "value")):
                slots = past_kv[layer, place]
                bind(binding.bind_input, f"past_{part}.{layer}", slots)
                bind(binding.bind_output, f"present_{part}.{layer}", slots)
        self._session.run_with_iobinding(binding)
        return logits

    def forced(self, prompt: Sequence[int], answer: Sequence[int]) -> np.ndarray:
        """By the first slot."""
        logits = [self.step([prompt], [0])]
        logits += [self.step([[token]], [len(prompt) + done]) for done, token in enumerate(answer[:-1])]
        return np.concatenate(logits)


def bind(method: Any, name: str, array: np.ndarray) -> None:
    method(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
