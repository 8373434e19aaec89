"""The real model: compared with transformers' own greedy decode, and under the same conditions as the tiny one."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from ops.model.prepare import prepare_model
from shared.model.folder import ModelFolder
from tests.support.models.native_library import native_library
from workers.engine import DecodeRow, Engine, PrefillChunk, Sampling
from workers.engine.greedy import answer_greedily
from workers.engine.native.engine import NativeEngine
from workers.engine.onnx import OnnxEngine

GREEDY = Sampling()
GOLDEN: dict[str, Any] = msgspec.json.decode(
    (Path(__file__).parents[1] / "golden" / "smollm2_greedy.json").read_bytes()
)
# docs/models.md has 200 prompts; here, by the native engine, int8 0.973 and 0.0017 nats, q4 0.949 and 0.0032. The
# bounds leave room for a small sample and other CPUs.
BOUNDS = {"int8": (0.965, 0.003), "native": (0.955, 0.003), "native_q4": (0.93, 0.005)}
FEWEST_POSITIONS = 200
CASES: list[dict[str, Any]] = GOLDEN["cases"]


CpuEngine = OnnxEngine | NativeEngine


def engine_of(folder: ModelFolder) -> OnnxEngine:
    return OnnxEngine(folder, num_slots=8, max_length=256, threads=2, spinning=False, max_prefill_rows=8)


def native_of(folder: ModelFolder) -> NativeEngine:
    return NativeEngine(folder, native_library(), num_slots=8, max_length=256, threads=2)


@pytest.fixture(scope="module")
def int8(model_folder: ModelFolder) -> Iterator[OnnxEngine]:
    engine = engine_of(model_folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def fp32(fp32_model_folder: ModelFolder) -> Iterator[OnnxEngine]:
    engine = engine_of(fp32_model_folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def native(model_folder: ModelFolder) -> Iterator[NativeEngine]:
    engine = native_of(model_folder)
    yield engine
    engine.close()


@pytest.fixture(scope="module")
def native_q4(models_dir: Path) -> Iterator[NativeEngine]:
    """The layers in 4 bits (a few seconds, 98 MB)."""
    engine = native_of(prepare_model(models_dir, "q4"))
    yield engine
    engine.close()


def test_the_golden_answers_are_of_the_prepared_weights(model_folder: ModelFolder) -> None:
    assert GOLDEN["source_sha256"] == model_folder.manifest.source.sha256


@pytest.mark.parametrize("case", CASES, ids=[case["question"][:20] for case in CASES])
def test_fp32_equals_transformers_token_for_token(fp32: Engine, case: dict[str, Any]) -> None:
    [answer] = answer_greedily(fp32, [case["prompt_ids"]], len(case["answer_ids"]))
    assert answer == case["answer_ids"]


def forced(engine: CpuEngine) -> np.ndarray:
    """Return the natural logarithms of all tokens' probabilities at each position of eight answers: `[positions,
    vocabulary]`.
    """
    asked = [(case["prompt_ids"], case["answer_ids"]) for case in CASES[:8]]
    length = min(len(answer) for _, answer in asked)
    engine.prefill([PrefillChunk(slot=at, past=0, token_ids=ids, sampling=GREEDY) for at, (ids, _) in enumerate(asked)])
    logits = [engine.logits[:8].copy()]
    for done in range(length - 1):
        rows = [
            DecodeRow(slot=at, past=len(prompt) + done, token_id=answer[done], sampling=GREEDY)
            for at, (prompt, answer) in enumerate(asked)
        ]
        engine.decode(rows)
        logits.append(engine.logits[:8].copy())
    found = np.concatenate(logits).astype(np.float64)
    found -= found.max(axis=1, keepdims=True)
    return found - np.log(np.exp(found).sum(axis=1, keepdims=True))


@pytest.mark.parametrize("name", BOUNDS)
def test_fewer_bits_agree_with_fp32(name: str, fp32: OnnxEngine, request: pytest.FixtureRequest) -> None:
    """At each position of fp32's answers, given its tokens so far: the likeliest token, and the divergence of the
    distribution.
    """
    agreement, divergence = BOUNDS[name]
    wanted, found = forced(fp32), forced(request.getfixturevalue(name))
    assert len(wanted) >= FEWEST_POSITIONS
    assert np.mean(wanted.argmax(axis=1) == found.argmax(axis=1)) >= agreement
    assert np.mean(np.sum(np.exp(wanted) * (wanted - found), axis=1)) <= divergence


@pytest.mark.parametrize("name", ["int8", "fp32", "native", "native_q4"])
def test_a_ragged_batch_equals_solo_runs(name: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(name)
    prompts = [case["prompt_ids"] for case in CASES[:4]]
    solo = [answer_greedily(engine, [prompt], 24)[0] for prompt in prompts]
    assert answer_greedily(engine, prompts, 24) == solo


@pytest.mark.parametrize("name", ["int8", "fp32", "native", "native_q4"])
def test_chunks_and_imported_kv_equal_one_prefill(name: str, request: pytest.FixtureRequest) -> None:
    engine: Engine = request.getfixturevalue(name)
    prompt = CASES[2]["prompt_ids"]
    [expected] = answer_greedily(engine, [prompt], 16)
    prefix = engine.export_kv(slot=0, start=0, stop=16)
    engine.import_kv(slot=1, start=0, values=prefix)
    for start in range(16, len(prompt), 13):
        token_ids = prompt[start : start + 13]
        sampling = GREEDY if start + 13 >= len(prompt) else None
        [token] = engine.prefill([PrefillChunk(slot=1, past=start, token_ids=token_ids, sampling=sampling)])
    engine.move(source=1, target=0, length=len(prompt))
    answer = [token]
    while len(answer) < 16:
        past = len(prompt) + len(answer) - 1
        answer += engine.decode([DecodeRow(slot=0, past=past, token_id=answer[-1], sampling=GREEDY)])
    assert answer == expected
