"""A pruned decoder computes what the whole one computes with the same parts set to zero, in every family."""

from pathlib import Path

import numpy as np
import pytest

from ops.lab.optimize.lessons import Lesson
from ops.lab.optimize.prune.importance import predicted
from ops.lab.optimize.prune.parts import Kept, smaller
from ops.lab.optimize.prune.writing import write_folder
from ops.model.numerics.forward import PlainProducts, hidden_states
from ops.model.prepare import prepare_model
from shared.model.folder import Architecture
from tests.support.models.families import DENSE_CONFIGS, family_tensors, write_family
from workers.engine.greedy import answer_greedily
from workers.engine.onnx import OnnxEngine
from workers.graph.sources.checkpoint import Checkpoint, Weight
from workers.graph.sources.opening import ModelSource, open_source

TEXTS = [[5, 9, 77, 30, 8, 120], [1, 60, 200, 7]]


def random_parts(architecture: Architecture, seed: int) -> Kept:
    """Return parts that differ from layer to layer, without one layer."""
    a, random = architecture, np.random.default_rng(seed)

    def some(count: int, kept: int) -> tuple[np.ndarray, ...]:
        return tuple(np.sort(random.permutation(count)[:kept]) for _ in range(a.num_layers))

    removed = int(random.integers(a.num_layers))
    return Kept(
        tuple(layer for layer in range(a.num_layers) if layer != removed),
        some(a.num_kv_heads, max(1, a.num_kv_heads - 1)),
        some(a.intermediate_size, a.intermediate_size - 32),
    )


def zeroed(checkpoint: Checkpoint, kept: Kept) -> Checkpoint:
    """Return the whole decoder in which all other parts add nothing to the residual stream."""
    a, weights = checkpoint.architecture, dict(checkpoint.weights)
    width = a.head_dim * (a.num_heads // a.num_kv_heads)
    for layer in range(a.num_layers):
        is_kept = layer in kept.layers
        heads = (kept.groups[layer][:, np.newaxis] * width + np.arange(width)).reshape(-1)
        for name, columns in (("self_attn.o_proj", heads), ("mlp.down_proj", kept.channels[layer])):
            matrix = checkpoint.read(f"layers.{layer}.{name}")
            mask = np.zeros(matrix.shape[1], np.float32)
            mask[columns] = is_kept
            weights[f"layers.{layer}.{name}"] = constant(matrix * mask)
            bias = f"layers.{layer}.{name}.bias"
            if bias in weights:
                weights[bias] = constant(checkpoint.read(bias) * np.float32(is_kept))
    return Checkpoint(architecture=a, weights=weights)


def constant(values: np.ndarray) -> Weight:
    return Weight(values.shape, lambda: values)


@pytest.fixture(params=DENSE_CONFIGS)
def source(request: pytest.FixtureRequest, tmp_path: Path) -> ModelSource:
    config = DENSE_CONFIGS[request.param]
    write_family(tmp_path / "whole", config, family_tensors(config, 1))
    return open_source(tmp_path / "whole")


@pytest.mark.parametrize("seed", range(3))
def test_the_smaller_decoder_equals_the_whole_one_with_zeros(source: ModelSource, seed: int) -> None:
    kept = random_parts(source.checkpoint.architecture, seed)
    states = [
        hidden_states(each, TEXTS, PlainProducts(), lambda _fraction: None)
        for each in (smaller(source.checkpoint, kept), zeroed(source.checkpoint, kept))
    ]
    np.testing.assert_allclose(states[0], states[1], rtol=1e-5, atol=1e-5)


def test_the_written_folder_answers_like_the_whole_one_with_zeros(source: ModelSource, tmp_path: Path) -> None:
    """The folder is read back as the same family, and the CPU engine computes it."""
    kept = random_parts(source.checkpoint.architecture, 0)
    write_folder(tmp_path / "small", smaller(source.checkpoint, kept), source.tokenizer, source.stop_token_ids, {})
    read = open_source(tmp_path / "small")
    assert read.checkpoint.architecture == smaller(source.checkpoint, kept).architecture
    assert read.stop_token_ids == source.stop_token_ids
    folder = prepare_model(tmp_path / "models", "fp32", source=tmp_path / "small")
    engine = OnnxEngine(folder, num_slots=1, max_length=32, threads=1, max_prefill_rows=1)
    try:
        answer = answer_greedily(engine, [TEXTS[0]], 4)[0]
    finally:
        engine.close()
    whole = Lesson((*TEXTS[0], *answer), len(TEXTS[0]))
    logs = predicted(zeroed(source.checkpoint, kept), [whole]).log_probabilities
    best = logs.max(axis=1)
    chosen = logs[np.arange(len(answer)), answer]
    assert np.all(best - chosen < 1e-4)  # the engine's token is the most likely one


def test_all_parts_kept_is_the_whole_decoder(source: ModelSource) -> None:
    whole = source.checkpoint
    kept = smaller(whole, Kept.all_of(whole.architecture))
    assert kept.architecture == whole.architecture
    assert all(np.array_equal(kept.read(name), whole.read(name)) for name in whole.weights)
