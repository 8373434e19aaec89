"""From settings to a running engine: plans are built once, tried in another process, built again where they fail."""

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest
from cuda_emulation import Cuda, TensorRT

from ops.model import prepare_model
from shared.errors import EngineError, SettingsError
from shared.model_folder import ModelFolder
from shared.settings import Settings
from workers.engine import PrefillChunk, Sampling, tensorrt_loading
from workers.engine.loading import load_model
from workers.engine.tensorrt_probe import DeviceFacts, Unusable

MAX_LENGTH = 96
FACTS = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=1 << 30, total_bytes=1 << 31, version="10.15.1")


@dataclass
class Machine:
    """One with an emulated GPU. `rejects` is how many plans more the other process finds wanting."""

    plans: Path
    built: list[str] = field(default_factory=list)
    probed: list[Path | None] = field(default_factory=list)
    rejects: int = 0
    cuda: Cuda = field(default_factory=Cuda)

    def probe(self, _library: str, plan: Path | None = None) -> DeviceFacts | Unusable:
        self.probed.append(plan)
        if plan is not None and self.rejects:
            self.rejects -= 1
            return Unusable(f"{plan} does not load on a GPU, sm_90; delete it")
        return FACTS

    def build_decoder(self, _library: Any, graph: Path, *_rest: Any) -> bytes:
        self.built.append("decoder")
        return bytes(onnx.load(graph).SerializeToString())

    def build_sampler(self, _library: Any, graph: bytes, *_rest: Any) -> bytes:
        self.built.append("sampler")
        return graph


@pytest.fixture(scope="module")
def slots_folder(tmp_path_factory: pytest.TempPathFactory, tiny_source: Path) -> ModelFolder:
    return prepare_model(tmp_path_factory.mktemp("models"), "fp16", source=tiny_source, max_length=MAX_LENGTH)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "plans")
    library = TensorRT(machine.cuda)
    library.__version__ = FACTS.version
    bindings = SimpleNamespace(runtime=machine.cuda)
    for name, module in {"cuda": SimpleNamespace(bindings=bindings), "cuda.bindings": bindings}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "workers.engine.tensorrt_cuda", raising=False)
    emulated = importlib.import_module("workers.engine.tensorrt_cuda")
    monkeypatch.setitem(sys.modules, "workers.engine.tensorrt_cuda", emulated)
    monkeypatch.setattr(tensorrt_loading, "import_library", lambda _name: library)
    for name in ("probe", "build_decoder", "build_sampler"):
        monkeypatch.setattr(tensorrt_loading, name, getattr(machine, name))
    return machine


def settings(folder: ModelFolder, machine: Machine, **worker: object) -> Settings:
    values = {"engine": "tensorrt", "slots": 3, "max_length": MAX_LENGTH, "plans_dir": machine.plans, **worker}
    return Settings.model_validate({"model": {"dir": folder.path}, "worker": values})


def first_token(folder: ModelFolder, machine: Machine) -> int | None:
    engine = load_model(settings(folder, machine)).engine
    assert (engine.info.name, engine.info.num_slots, engine.info.max_length) == ("tensorrt", 3, MAX_LENGTH)
    [token] = engine.prefill([PrefillChunk(slot=1, past=0, token_ids=[5, 6, 7], sampling=Sampling())])
    engine.close()
    return token


def test_plans_are_built_at_the_first_start_alone(slots_folder: ModelFolder, machine: Machine) -> None:
    token = first_token(slots_folder, machine)
    assert machine.built == ["decoder", "sampler"]
    assert first_token(slots_folder, machine) == token
    assert machine.built == ["decoder", "sampler"]
    # Each time another process has looked at the GPU, and has loaded the plan.
    [decoder] = machine.plans.glob("tiny-fp16-*.plan")
    assert machine.probed == [None, decoder] * 2
    assert machine.cuda.live == 0


def test_a_damaged_plan_is_built_again_and_never_loaded(slots_folder: ModelFolder, machine: Machine) -> None:
    token = first_token(slots_folder, machine)
    [decoder] = machine.plans.glob("tiny-fp16-*.plan")
    decoder.write_bytes(decoder.read_bytes()[:-10] + bytes(10))
    assert first_token(slots_folder, machine) == token
    assert machine.built == ["decoder", "sampler", "decoder"]


def test_a_plan_that_ends_another_process_is_built_again(slots_folder: ModelFolder, machine: Machine) -> None:
    token = first_token(slots_folder, machine)
    machine.rejects = 1
    assert first_token(slots_folder, machine) == token
    assert machine.built == ["decoder", "sampler", "decoder"]


def test_a_plan_that_fails_twice_is_not_loaded(slots_folder: ModelFolder, machine: Machine) -> None:
    first_token(slots_folder, machine)
    machine.rejects = 2
    with pytest.raises(SettingsError, match=r"WORKER__ENGINE=tensorrt: .*tiny-fp16-.*\.plan does not load on a GPU"):
        load_model(settings(slots_folder, machine))
    assert machine.built == ["decoder", "sampler", "decoder"]


def test_plans_that_cannot_be_kept_serve_all_the_same(slots_folder: ModelFolder, machine: Machine) -> None:
    machine.plans.write_text("a file where the folder should be")
    assert first_token(slots_folder, machine) is not None
    assert machine.probed == [None, None]


def test_a_device_that_fails_while_it_is_loaded_is_given_back(slots_folder: ModelFolder, machine: Machine) -> None:
    machine.cuda.fails = "create_execution_context"
    with pytest.raises(EngineError, match="opens no execution"):
        load_model(settings(slots_folder, machine))
    assert machine.cuda.live == 0
