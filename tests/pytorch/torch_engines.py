"""Build torch engines for tests, and read the logits that they compute."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from shared.model.folder import ModelFolder
from tests.support.models.onnx_device import LateStream
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.torch.device import TorchDevice, TorchExecution
from workers.engine.torch.engine import TorchEngine
from workers.engine.torch.weights import load_weights

GREEDY = Sampling()


def on_the_cpu(folder: ModelFolder, *, num_slots: int = 1, max_length: int = 96) -> TorchEngine:
    return on_device(folder, TorchDevice("cpu"), num_slots=num_slots, max_length=max_length)


def on_device(folder: ModelFolder, device: TorchDevice, **options: Any) -> TorchEngine:
    return TorchEngine(folder.manifest, load_weights(folder, device.device), device, **options)


def logits_of(engine: TorchEngine, row: int = 0) -> np.ndarray:
    """Return the logits that the last step computed for a row."""
    vocab_size = engine._decoder.architecture.vocab_size
    logits = engine._device.tensor(engine._reader._logits, (engine.info.num_slots, vocab_size), torch.float32)
    return logits[row].cpu().numpy().copy()


def forced(engine: TorchEngine, prompt: Sequence[int], answer: Sequence[int]) -> np.ndarray:
    """Return the logits before each token of the answer, given the prompt and the answer so far.

    Returns:
        Shape `[len(answer), vocabulary]`.
    """
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=GREEDY)])
    logits = [logits_of(engine)]
    for done, token in enumerate(answer[:-1]):
        engine.decode([DecodeRow(slot=0, past=len(prompt) + done, token_id=token, sampling=GREEDY)])
        logits.append(logits_of(engine))
    return np.array(logits)


class LateTorchStream(LateStream):
    """Delays work until the caller waits for the stream, then runs it in the order in which a GPU would
    (tests/support/models/onnx_device.py)."""

    def run(self, execution: TorchExecution) -> None:
        self._waiting.append(execution.enqueue)


class LateTorchDevice(TorchDevice):
    """The CPU with delayed streams and recorded steps, so that an engine that reads too early returns wrong tokens."""

    def __init__(self) -> None:
        super().__init__("cpu")
        self.records = True
        self.streams: list[LateTorchStream] = []

    def open_stream(self) -> LateTorchStream:
        self.streams.append(LateTorchStream())
        return self.streams[-1]
