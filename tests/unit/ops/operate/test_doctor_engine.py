"""The doctor shows what the configured engine will take, and what its GPU lacks, before a worker finds out."""

import dataclasses
from pathlib import Path

import msgspec
import pytest

from ops.model.prepare import prepare_model
from ops.operate.doctor import engine_facts as module
from ops.operate.doctor.engine_facts import EngineFacts, engine_facts
from ops.operate.doctor.rows import Row, Status, judge, nothing_is_missing
from shared.model.folder import ModelFolder
from shared.settings import Settings
from tests.unit.ops.operate.test_doctor import COMPLETE
from workers.engine.memory_plan import MemoryPlan
from workers.engine.tensorrt.probe import DeviceFacts, Unusable

PLAN = MemoryPlan(
    weights_bytes=300 << 20,
    slot_bytes=50 << 20,
    num_slots=8,
    workspace_bytes=100 << 20,
    available_bytes=2_000 << 20,
)
GPU = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=9 << 30, total_bytes=10 << 30, version="10.15.1")


def rows(engine: EngineFacts) -> dict[str, Row]:
    found = judge(dataclasses.replace(COMPLETE, engine=engine), "demo")
    assert nothing_is_missing(found)
    return {row.name: row for row in found}


def test_a_plan_that_fits_is_shown() -> None:
    row = rows(EngineFacts(name="onnx", memory=PLAN))["memory plan"]
    assert (row.status, row.remedy) == (Status.OK, "")
    assert row.detail == "needs 900 of 2,000 MiB: weights 300, KV of 8 slots 400, workspace 100, reserve 100"


def test_a_plan_that_does_not_fit_says_what_to_lower() -> None:
    row = rows(EngineFacts(name="onnx", memory=dataclasses.replace(PLAN, num_slots=64)))["memory plan"]
    assert row.status is Status.WARN
    assert row.remedy.startswith("lower REPLYLINE_WORKER__SLOTS to 26")


def test_a_gpu_that_cannot_be_used_is_a_line() -> None:
    found = rows(EngineFacts(name="tensorrt", gpu=Unusable("no CUDA driver on this machine")))
    assert found["engine tensorrt"].status is Status.WARN
    assert found["engine tensorrt"].detail == "no CUDA driver on this machine"
    assert "REPLYLINE_WORKER__FALLBACK_ENGINE=onnx" in found["engine tensorrt"].remedy
    assert "memory plan" not in found


def test_the_gpus_plan_is_held_against_its_free_memory(
    slots_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "probe", lambda _library: GPU)
    values = {"model": {"dir": slots_folder.path}, "worker": {"engine": "tensorrt", "slots": 4, "max_length": 96}}
    facts = engine_facts(Settings.model_validate(values))
    assert facts.gpu == GPU
    assert facts.memory is not None
    assert (facts.memory.available_bytes, facts.memory.num_slots) == (GPU.free_bytes, 4)


def test_a_library_that_cannot_take_the_models_graph_is_a_line(
    slots_folder: ModelFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = msgspec.structs.replace(GPU, version="10.14.1", kv_in_place=False)
    monkeypatch.setattr(module, "probe", lambda _library: older)
    values = {"model": {"dir": slots_folder.path}, "worker": {"engine": "tensorrt", "slots": 4, "max_length": 96}}
    row = rows(engine_facts(Settings.model_validate(values)))["engine tensorrt"]
    assert row.status is Status.WARN
    assert row.detail.startswith("TensorRT 10.14.1 cannot keep KV in place")
    assert row.detail.endswith("replyline model prepare --precision fp16 --primitive")


def test_where_the_system_does_not_tell_its_memory_there_is_no_plan(
    tmp_path_factory: pytest.TempPathFactory, tiny_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, which has no /proc."""
    folder = prepare_model(tmp_path_factory.mktemp("models"), "fp32", source=tiny_source)
    settings = Settings.model_validate({"model": {"dir": folder.path}, "worker": {"max_length": 96}})
    assert engine_facts(settings).memory is not None
    monkeypatch.setattr(module, "available_memory", lambda: None)
    assert engine_facts(settings) == EngineFacts(name="onnx")
