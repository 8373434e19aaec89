"""Rows of the CPU's engine keep apart."""

from pathlib import Path

import numpy as np

from ops.model.prepare import prepare_model
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.onnx import OnnxEngine

TEXT = [5, *range(40, 70), 7, 300, 12]


def test_a_row_s_logits_are_the_same_to_the_bit_in_any_company(tiny_source: Path, tmp_path: Path) -> None:
    """In 8 bits alone or among others, prefilled whole or token by token."""
    greedy = Sampling()
    engine = OnnxEngine(
        prepare_model(tmp_path, "int8", source=tiny_source),
        num_slots=4,
        max_length=64,
        threads=2,
        spinning=False,
        max_prefill_rows=4,
    )
    prompts = [TEXT, TEXT[::-1], [9] * len(TEXT), TEXT[3:]]
    chunks = [PrefillChunk(slot=slot, past=0, token_ids=ids, sampling=greedy) for slot, ids in enumerate(prompts)]
    engine.prefill(chunks)
    together = engine.logits.copy()
    for slot, chunk in enumerate(chunks):
        engine.prefill([PrefillChunk(slot=0, past=0, token_ids=chunk.token_ids, sampling=greedy)])
        assert np.array_equal(engine.logits[0], together[slot])
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=TEXT[:-1], sampling=greedy)])
    engine.decode([DecodeRow(slot=0, past=len(TEXT) - 1, token_id=TEXT[-1], sampling=greedy)])
    np.testing.assert_allclose(engine.logits[0], together[0], rtol=0, atol=0.05)
    engine.close()
