"""Every family's graph in every dialect, run by ONNX Runtime's CPU kernels, gives the numbers of transformers.

Behaviour of the GPU alone (TensorRT's own kernels) is not tested here.
"""

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import onnx
import pytest

from ops.model.prepare import prepare_model
from shared.errors import ModelError
from shared.model.folder import ModelFolder
from tests.support.models.families import FAMILY_CONFIGS, family_tensors, weights_sha256, write_family
from tests.support.models.reference import reference_logits
from tests.support.models.teacher_forced import GraphSlots, engine_forced
from workers.engine import PrefillChunk
from workers.engine.onnx import OnnxEngine
from workers.graph.sources.checkpoint import Checkpoint, Weight
from workers.graph.sources.safetensors import SafetensorsSource
from workers.graph.tensorrt import write_tensorrt_decoder

CASES: list[dict[str, Any]] = msgspec.json.decode(
    (Path(__file__).parents[1] / "golden" / "families.json").read_bytes()
)["cases"]
# Measured against transformers' float32: at most 1.7e-5 and 4.3e-2, logits being up to 8.
DIFFERENCE = {"float32": 1e-4, "float16": 0.1}
each_case = pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])


def write(source: Path, case: dict[str, Any], *, shards: int = 1) -> None:
    config = FAMILY_CONFIGS[case["name"]]
    write_family(source, config, family_tensors(config, case["seed"]), shards=shards)


def checkpoint_of(directory: Path, case: dict[str, Any]) -> Checkpoint:
    write(directory / "source", case)
    return SafetensorsSource.open(directory / "source").checkpoint()


@each_case
@pytest.mark.parametrize("dtype", DIFFERENCE)
def test_every_family_equals_transformers(tmp_path: Path, case: dict[str, Any], dtype: str) -> None:
    slots = GraphSlots(checkpoint_of(tmp_path, case), tmp_path / "graph", dtype=dtype)
    logits = slots.forced(case["prompt_ids"], case["answer_ids"])
    np.testing.assert_allclose(logits[0], case["first_logits"], rtol=0, atol=DIFFERENCE[dtype])
    np.testing.assert_allclose(logits[-1], case["last_logits"], rtol=0, atol=DIFFERENCE[dtype])
    if dtype == "float32":
        assert logits.argmax(axis=1).tolist() == case["answer_ids"]


@each_case
def test_the_graph_keeps_the_same_kv_as_the_cpu_dialect(tmp_path: Path, case: dict[str, Any]) -> None:
    slots = GraphSlots(checkpoint_of(tmp_path, case), tmp_path / "graph", dtype="float32")
    prompt = case["prompt_ids"]
    slots.step([prompt], [0])
    folder = prepare_model(tmp_path, "fp32", source=tmp_path / "source")
    engine = OnnxEngine(folder, num_slots=1, max_length=64, threads=1, spinning=False)
    engine.prefill([PrefillChunk(slot=0, past=0, token_ids=prompt, sampling=None)])
    expected = engine.export_kv(slot=0, start=0, stop=len(prompt))
    np.testing.assert_allclose(slots.kv[:, :, 0, :, : len(prompt)], expected, rtol=0, atol=1e-4)
    assert not slots.kv[:, :, 0, :, len(prompt) :].any()


@pytest.mark.parametrize("dtype", DIFFERENCE)
def test_a_ragged_batch_over_used_slots_equals_solo_runs(tmp_path: Path, dtype: str) -> None:
    """A row's neighbours, its padding and the slot's earlier content do not affect it."""
    case = CASES[2]
    checkpoint = checkpoint_of(tmp_path, case)
    prompts = [case["prompt_ids"][:count] for count in (7, 40, 23)]
    given = case["answer_ids"][:4]
    used = GraphSlots(checkpoint, tmp_path / "batch", dtype=dtype, num_slots=4, fill=9.0)
    batched = [used.step(prompts, [0, 0, 0])]
    for done, token in enumerate(given[:-1]):
        batched.append(used.step([[token]] * 3, [len(prompt) + done for prompt in prompts]))
    for row, prompt in enumerate(prompts):
        alone = GraphSlots(checkpoint, tmp_path / f"solo{row}", dtype=dtype)
        solo = alone.forced(prompt, given)
        np.testing.assert_allclose([step[row] for step in batched], solo, rtol=0, atol=DIFFERENCE[dtype] / 10)
    assert (used.kv[:, :, 3] == 9).all()


def test_chunks_after_a_slots_content_equal_one_prefill(tmp_path: Path) -> None:
    case = CASES[4]
    slots = GraphSlots(checkpoint_of(tmp_path, case), tmp_path / "graph", dtype="float32")
    prompt = case["prompt_ids"]
    for start in range(0, len(prompt), 13):
        logits = slots.step([prompt[start : start + 13]], [start])
    np.testing.assert_allclose(logits[0], case["first_logits"], rtol=0, atol=DIFFERENCE["float32"])


@each_case
def test_the_graph_is_standard_and_strongly_typed(tmp_path: Path, case: dict[str, Any]) -> None:
    """ONNX's own checker infers every type; a missing cast fails it, as does an operator newer than the
    graph's opset.
    """
    checkpoint = checkpoint_of(tmp_path, case)
    write_tensorrt_decoder(checkpoint, tmp_path, max_length=64, progress=lambda _fraction: None)
    onnx.checker.check_model(tmp_path / "model.onnx", full_check=True)
    model = onnx.load(tmp_path / "model.onnx", load_external_data=False)
    assert [(opset.domain, opset.version) for opset in model.opset_import] == [("", 24)]
    half = {w.name for w in model.graph.initializer if w.data_type == onnx.TensorProto.FLOAT16}
    expected = set()
    for layer in range(checkpoint.architecture.num_layers):
        mlp = "mlp" if checkpoint.architecture.experts_in(layer) is None else "mlp.experts"
        matrices = ("self_attn.qkv", "self_attn.o_proj", *(f"{mlp}.{part}_proj" for part in ("gate", "up", "down")))
        expected |= {f"layers.{layer}.{matrix}.weight" for matrix in matrices}
    assert expected <= half
    assert not any("mlp.gate." in name for name in half), "routers are float32"


@pytest.mark.parametrize("max_length", [0, 257])
def test_slots_longer_than_the_models_positions_are_refused(tmp_path: Path, max_length: int) -> None:
    checkpoint = checkpoint_of(tmp_path, CASES[0])
    with pytest.raises(ModelError, match=f"1 to the model's 256 positions, got {max_length}"):
        write_tensorrt_decoder(checkpoint, tmp_path, max_length=max_length, progress=lambda _fraction: None)


def test_a_weight_beyond_float16_is_named(tmp_path: Path) -> None:
    whole = checkpoint_of(tmp_path, CASES[0])
    name = "layers.1.mlp.up_proj"
    large = Weight(whole.weights[name].shape, lambda: np.full(whole.weights[name].shape, 1e5, np.float32))
    checkpoint = Checkpoint(architecture=whole.architecture, weights={**whole.weights, name: large})
    with pytest.raises(ModelError, match=r"'layers.1.mlp.up_proj' holds weights that float16 cannot hold"):
        write_tensorrt_decoder(checkpoint, tmp_path, max_length=64, progress=lambda _fraction: None)


# --- the dialect of the CPU


def prepared(directory: Path, case: dict[str, Any], precision: Any, *, shards: int = 1) -> ModelFolder:
    write(directory / "source", case, shards=shards)
    return prepare_model(directory, precision, source=directory / "source")


def test_every_family_is_in_the_golden_file() -> None:
    assert [case["name"] for case in CASES] == list(FAMILY_CONFIGS)


@each_case
def test_the_weights_are_those_of_the_transformers_run(case: dict[str, Any]) -> None:
    assert weights_sha256(family_tensors(FAMILY_CONFIGS[case["name"]], case["seed"])) == case["weights_sha256"]


@each_case
def test_the_numpy_reference_equals_transformers(tmp_path: Path, case: dict[str, Any]) -> None:
    """The native engine is compared with it in shapes that transformers was not run on."""
    logits = reference_logits(checkpoint_of(tmp_path, case), [*case["prompt_ids"], *case["answer_ids"][:-1]])
    np.testing.assert_allclose(logits[39], case["first_logits"], rtol=0, atol=DIFFERENCE["float32"])
    np.testing.assert_allclose(logits[-1], case["last_logits"], rtol=0, atol=DIFFERENCE["float32"])


@each_case
def test_fp32_equals_transformers(tmp_path: Path, case: dict[str, Any]) -> None:
    logits = engine_forced(prepared(tmp_path, case, "fp32", shards=3), case["prompt_ids"], case["answer_ids"])
    assert logits.argmax(axis=1).tolist() == case["answer_ids"]
    np.testing.assert_allclose(logits[0], case["first_logits"], rtol=0, atol=DIFFERENCE["float32"])
    np.testing.assert_allclose(logits[-1], case["last_logits"], rtol=0, atol=DIFFERENCE["float32"])


@each_case
def test_int8_is_near_transformers(tmp_path: Path, case: dict[str, Any]) -> None:
    logits = engine_forced(prepared(tmp_path, case, "int8"), case["prompt_ids"], case["answer_ids"])
    expected = np.array(case["first_logits"])
    assert np.corrcoef(logits[0], expected)[0, 1] > 0.99
