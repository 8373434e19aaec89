"""Mixtures of experts in the CPU's engines: which experts a row chooses, and that its bits do not depend on others."""

import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ops.model.numerics.outliers import even
from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from tests.conformance.test_dialects import CASES, prepared
from tests.support.models.families import EXPERT_CONFIGS, family_tensors, write_family
from tests.support.models.native_library import native_library
from tests.support.models.reference import reference_logits
from tests.support.models.teacher_forced import engine_forced, native_forced
from tests.support.typed_pages import ALL, ROOT
from workers.engine import DecodeRow, PrefillChunk, Sampling
from workers.engine.native.engine import NativeEngine
from workers.engine.onnx import OnnxEngine
from workers.graph.sources.safetensors import SafetensorsSource

GREEDY = Sampling()
MIXTURES = [case for case in CASES if case["name"] in EXPERT_CONFIGS]
PROMPTS = [[3 + int(bits) % 256 for bits in np.random.PCG64(row).random_raw(5 + row % 4)] for row in range(16)]


def opened(kind: str, folder: ModelFolder, threads: int) -> Any:
    if kind == "onnx":
        return OnnxEngine(folder, num_slots=16, max_length=32, threads=threads, max_prefill_rows=16, spinning=False)
    return NativeEngine(folder, native_library(), num_slots=16, max_length=32, threads=threads, max_prefill_rows=16)


def answered(engine: Any, rows: range) -> np.ndarray:
    """Return the logits `[rows, 4, vocabulary]` of rows that are computed together, each in its own slot."""
    chunks = [PrefillChunk(slot=at, past=0, token_ids=PROMPTS[row], sampling=GREEDY) for at, row in enumerate(rows)]
    tokens = engine.prefill(chunks)
    found = [engine.logits[: len(rows)].copy()]
    for step in range(3):
        decoded = [
            DecodeRow(slot=at, past=len(PROMPTS[row]) + step, token_id=tokens[at], sampling=GREEDY)
            for at, row in enumerate(rows)
        ]
        tokens = engine.decode(decoded)
        found.append(engine.logits[: len(rows)].copy())
    return np.stack(found, axis=1)


@pytest.mark.parametrize("kind", ["onnx", "native"])
@pytest.mark.parametrize("case", MIXTURES, ids=[case["name"] for case in MIXTURES])
def test_a_row_has_the_same_bits_alone_and_among_others(tmp_path: Path, case: dict[str, Any], kind: str) -> None:
    """Among 1 to 16 rows, on one thread and on two: another worker continues an answer with the same tokens."""
    folder = prepared(tmp_path, case, "int8")
    one, two = opened(kind, folder, 1), opened(kind, folder, 2)
    alone = np.concatenate([answered(one, range(row, row + 1)) for row in range(16)])
    for count in range(1, 17):
        assert np.array_equal(answered(two, range(count)), alone[:count]), f"{count} rows"
    one.close()
    two.close()


@pytest.mark.parametrize("name", ["mixtral", "olmoe"])
def test_of_equal_scores_the_lower_number_is_chosen(tmp_path: Path, name: str) -> None:
    """All scores are equal, so the first experts are chosen: with other weights in the rest no logit changes."""
    config = EXPERT_CONFIGS[name]
    chosen = config["num_experts_per_tok"]
    found = []
    for seed in (1, 2):
        tensors, others = family_tensors(config, 1), family_tensors(config, seed)
        for tensor, values in tensors.items():
            if tensor.endswith(("mlp.gate.weight", "block_sparse_moe.gate.weight")):
                values[:] = values[0]
            _, is_expert, number = tensor.partition(".experts.")
            if is_expert and int(number.partition(".")[0]) >= chosen:
                tensors[tensor] = others[tensor]
        source = tmp_path / f"source-{seed}"
        write_family(source, config, tensors)
        checkpoint = SafetensorsSource.open(source).checkpoint()
        int8 = prepare_model(tmp_path / str(seed), "int8", source=source)
        given = PROMPTS[0], PROMPTS[1][:4]
        fp32 = prepare_model(tmp_path / str(seed), "fp32", source=source)
        found.append([engine_forced(int8, *given), native_forced(int8, *given), engine_forced(fp32, *given)])
        found[-1].append(reference_logits(checkpoint, PROMPTS[0]))
    assert all(np.array_equal(one, other) for one, other in zip(*found, strict=True))


def test_an_expert_that_calibration_did_not_reach_is_named_and_rounded_by_its_weights(tmp_path: Path) -> None:
    config = EXPERT_CONFIGS["mixtral"]
    tensors = family_tensors(config, 1)
    for name, values in tensors.items():
        if name.endswith("block_sparse_moe.gate.weight"):
            values[:] = values[0]
    write_family(tmp_path / "source", config, tensors)
    said: list[str] = []
    prepare_model(tmp_path, "int8", source=tmp_path / "source", on_unreached=said.append)
    checkpoint = SafetensorsSource.open(tmp_path / "source").checkpoint()
    evened = even(checkpoint, PROMPTS)
    unreached = [f"layers.{layer}.mlp.experts.{number}" for layer in range(2) for number in range(2, 8)]
    assert list(evened.unreached) == unreached
    for name in unreached:
        assert np.array_equal(evened.checkpoint.read(f"{name}.down_proj"), checkpoint.read(f"{name}.down_proj"))
    named = ", ".join(unreached[:8])
    assert said == [
        f"no token of the texts chose {named} and 4 more: their weights are rounded by their own range alone"
    ]


@pytest.mark.timeout(300)
def test_the_pages_example_can_be_typed(tmp_path: Path) -> None:
    """Eight experts of which two compute each token; the folder it leaves answers by the native engine."""
    [block] = [block for block in ALL if block.page == "docs/models.md" and "engines.experts" in block.text]
    for path in ROOT.iterdir():
        if path.name not in {".run", ".git", ".models"}:
            (tmp_path / path.name).symlink_to(path)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("REPLYLINE_")}
    env = kept | {"PATH": f"{ROOT / '.venv' / 'bin'}:{kept['PATH']}"}
    subprocess.run(["bash", "-ec", block.text], cwd=tmp_path, env=env, check=True, capture_output=True)
    folder = ModelFolder.open(tmp_path / ".run" / "experts" / "source-int8")
    experts = folder.manifest.architecture.experts
    assert experts is not None
    assert (experts.count, experts.chosen) == (8, 2)
    assert np.isfinite(native_forced(folder, PROMPTS[0], PROMPTS[1][:3])).all()
