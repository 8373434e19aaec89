"""Tests that need a GPU. Without one they are not collected, and the last lines of the run name them."""

from pathlib import Path

import torch

from ops.model.prepare import prepare_model
from tests.pytorch.torch_engines import GREEDY, on_device
from workers.engine import DecodeRow, PrefillChunk
from workers.engine.torch.device import TorchDevice

NUM_STEPS = 1_000
NUM_SLOTS = 6


def test_decoding_takes_no_memory_of_the_gpu(tmp_path: Path, tiny_source: Path) -> None:
    """1,000 steps with every number of rows allocate neither a tensor nor a segment. Each step replays a CUDA graph."""
    folder = prepare_model(tmp_path, "bf16", source=tiny_source, max_length=96)
    engine = on_device(folder, TorchDevice("cuda"), num_slots=NUM_SLOTS, max_length=96)
    assert all(replay is not None for _, replay in engine._steps.values())
    for slot in range(NUM_SLOTS):
        engine.prefill([PrefillChunk(slot=slot, past=0, token_ids=[5, 6, 7], sampling=None)])

    def step(number: int) -> None:
        rows = range(1 + number % NUM_SLOTS)
        past = 3 + number % 90
        engine.decode([DecodeRow(slot=slot, past=past, token_id=9, sampling=GREEDY) for slot in rows])

    def allocated() -> list[int]:
        stats = torch.cuda.memory_stats()
        return [stats["allocation.all.allocated"], stats["segment.all.allocated"], stats["num_device_alloc"]]

    for number in range(NUM_SLOTS):
        step(number)
    before = allocated()
    for number in range(NUM_STEPS):
        step(number)
    assert allocated() == before
    engine.close()
