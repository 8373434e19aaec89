"""The doctor shows what the configured engine will take, and what its GPU lacks, before a worker finds out."""

import asyncio
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ops.model.prepare import prepare_model
from ops.operate.doctor import engine_facts as module
from ops.operate.doctor.engine_facts import EngineFacts, UpstreamFacts, engine_facts
from ops.operate.doctor.row import CheckRow, Status
from ops.operate.doctor.rows import judge, nothing_is_missing
from shared.model.folder import ModelFolder
from shared.settings import Settings, WorkerSettings
from tests.support.fakes.upstream import PAGE, sends, upstream
from tests.unit.ops.operate.test_doctor import COMPLETE
from workers.engine.memory_plan import MemoryPlan, cpu_memory_plan
from workers.engine.tensorrt.probe import DeviceFacts
from workers.engine.unusable import Unusable
from workers.engine.upstream.client import Served
from workers.engine.upstream.failures import UpstreamFailure

PLAN = MemoryPlan(
    weights_bytes=300 << 20,
    slot_bytes=50 << 20,
    num_slots=8,
    workspace_bytes=100 << 20,
    available_bytes=2_000 << 20,
)
GPU = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=9 << 30, total_bytes=10 << 30, version="10.15.1")


def rows(engine: EngineFacts) -> dict[str, CheckRow]:
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


def test_where_the_system_does_not_tell_its_memory_there_is_no_plan(
    tmp_path_factory: pytest.TempPathFactory, tiny_source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on macOS, which has no /proc."""
    folder = prepare_model(tmp_path_factory.mktemp("models"), "fp32", source=tiny_source)
    settings = Settings.model_validate({"model": {"dir": folder.path}, "worker": {"engine": "onnx", "max_length": 96}})
    assert engine_facts(settings).memory is not None
    monkeypatch.setattr(module, "available_memory", lambda: None)
    assert engine_facts(settings) == EngineFacts(name="onnx")


SERVED = Served(("tiny", "other"), slots=4, length=2_048)
UPSTREAM = UpstreamFacts(address="http://a/v1", found=SERVED, model="", slots=4, length=2_048)


@pytest.mark.parametrize(
    ("changed", "status", "says", "remedy"),
    [
        ({}, Status.OK, "serves tiny, other; 4 requests at a time, 2,048 tokens each", ""),
        ({"found": Served(("tiny",))}, Status.OK, "does not say how many requests at a time", ""),
        ({"slots": 8}, Status.WARN, "set: 8 and 2,048", "REPLYLINE_WORKER__SLOTS=4"),
        ({"length": 4_096}, Status.WARN, "set: 4 and 4,096", "REPLYLINE_WORKER__MAX_LENGTH=2048"),
        ({"model": "mine"}, Status.MISSING, "serves tiny, other; not mine", "REPLYLINE_UPSTREAM__MODEL"),
        ({"found": UpstreamFailure("unreachable", "ConnectError; start it")}, Status.MISSING, "ConnectError", "start"),
    ],
)
def test_an_upstream_is_a_row_with_what_it_serves(
    changed: dict[str, Any], status: Status, says: str, remedy: str
) -> None:
    engine = EngineFacts(name="upstream", upstreams=(dataclasses.replace(UPSTREAM, **changed),))
    judged = judge(dataclasses.replace(COMPLETE, engine=engine), "production")
    (row,) = [row for row in judged if row.name == "upstream http://a/v1"]
    assert row.status is status
    assert says in row.detail
    assert remedy in row.remedy


def test_where_another_upstream_answers_one_that_does_not_is_a_warning_and_no_model_folder_is_needed() -> None:
    gone = dataclasses.replace(UPSTREAM, address="http://b/v1", found=UpstreamFailure("silent", "no answer; look"))
    found = rows(EngineFacts(name="upstream", upstreams=(UPSTREAM, gone)))
    assert found["upstream http://b/v1"].status is Status.WARN
    assert "model" not in found


async def test_the_doctor_asks_each_upstream_what_it_serves(tmp_path: Path) -> None:
    """A llama-server reports its slots in `/props`, a vLLM the tokens of a request in `/models`."""
    (tmp_path / "key").write_text("s3cret\n")
    async with upstream() as fake:
        given = {"url": [fake.url], "key_file": tmp_path / "key"}
        settings = Settings.model_validate({"worker": {"engine": "upstream"}, "upstream": given})

        async def found() -> Served | UpstreamFailure:
            return (await asyncio.to_thread(engine_facts, settings)).upstreams[0].found

        assert await found() == Served(("tiny",), length=4_096)
        fake.props = sends(PAGE, b'{"total_slots": 4, "default_generation_settings": {"n_ctx": 2048}}')
        assert await found() == Served(("tiny",), slots=4, length=2_048)
        fake.models = sends(PAGE, b"{}")
        assert isinstance(await found(), UpstreamFailure)
        assert set(fake.keys) == {"Bearer s3cret"}


def test_the_native_engine_is_shown_with_its_kernel_and_what_built_it() -> None:
    row = rows(EngineFacts(name="native", native="kernel avx2 of avx2, by cc: gcc 12"))["engine native"]
    assert (row.status, row.detail) == (Status.OK, "kernel avx2 of avx2, by cc: gcc 12")


def test_what_the_native_engine_lacks_is_said_with_the_command(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, tiny_source: Path
) -> None:
    """And the memory plan is of the engine that computes instead."""
    folder = prepare_model(tmp_path_factory.mktemp("models"), "int8", source=tiny_source)
    worker = {"engine": "native", "native_dir": tmp_path, "max_length": 96}
    settings = Settings.model_validate({"model": {"dir": folder.path}, "worker": worker})
    facts = engine_facts(settings)
    row = rows(facts)["engine native"]
    assert (row.status, row.remedy) == (Status.WARN, "replyline model prepare")
    assert row.detail == f"it was not built in {tmp_path}: onnx computes"
    assert facts.memory is not None
    assert (
        facts.memory.slot_bytes
        == cpu_memory_plan(WorkerSettings(engine="onnx", max_length=96), folder.manifest, 1).slot_bytes
    )
