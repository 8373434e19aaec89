"""From settings to a running engine: plans are built once, tried in another process, built again where they fail."""

import importlib
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import onnx
import pytest
from structlog.testing import capture_logs

from ops.lab.profile import ProfileOptions, profile
from shared.errors import EngineError, SettingsError
from shared.model.folder import ModelFolder
from shared.settings import Settings
from tests.support.models.cuda_emulation import Cuda, TensorRT
from workers.engine import PrefillChunk, Sampling
from workers.engine.load_model import load_model
from workers.engine.tensorrt import load_tensorrt as tensorrt_loading
from workers.engine.tensorrt.probe import DeviceFacts
from workers.engine.tensorrt.shapes import unmet
from workers.engine.unusable import Unusable

MAX_LENGTH = 96
FACTS = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=1 << 30, total_bytes=1 << 31, version="10.15.1")


@dataclass
class Machine:
    """One with an emulated GPU. `rejects` is how many plans more the other process finds wanting."""

    plans: Path
    built: list[str] = field(default_factory=list)
    probed: list[Path | None] = field(default_factory=list)
    rejects: int = 0
    facts: DeviceFacts = FACTS
    cuda: Cuda = field(default_factory=Cuda)

    def probe(self, _library: str, plan: Path | None = None) -> DeviceFacts | Unusable:
        self.probed.append(plan)
        if plan is not None and self.rejects:
            self.rejects -= 1
            return Unusable(f"{plan} does not load on a GPU, sm_90; delete it")
        return self.facts

    def build_decoder(self, _library: Any, graph: Path, *_rest: Any) -> bytes:
        self.built.append("decoder")
        return bytes(onnx.load(graph).SerializeToString())

    def build_sampler(self, _library: Any, graph: bytes, *_rest: Any) -> bytes:
        self.built.append("sampler")
        return graph


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine(tmp_path / "plans")
    library = TensorRT(machine.cuda)
    library.__version__ = FACTS.version
    bindings = SimpleNamespace(runtime=machine.cuda)
    for name, module in {"cuda": SimpleNamespace(bindings=bindings), "cuda.bindings": bindings}.items():
        monkeypatch.setitem(sys.modules, name, module)
    monkeypatch.delitem(sys.modules, "workers.engine.tensorrt.cuda", raising=False)
    emulated = importlib.import_module("workers.engine.tensorrt.cuda")
    monkeypatch.setitem(sys.modules, "workers.engine.tensorrt.cuda", emulated)
    monkeypatch.setattr(tensorrt_loading, "import_library", lambda _name: library)
    for name in ("probe", "build_decoder", "build_sampler"):
        monkeypatch.setattr(tensorrt_loading, name, getattr(machine, name))
    return machine


def settings(folder: ModelFolder, machine: Machine, **worker: object) -> Settings:
    values = {"engine": "tensorrt", "slots": 3, "max_length": MAX_LENGTH, "cache_dir": machine.plans.parent, **worker}
    return Settings.model_validate({"model": {"dir": folder.path}, "worker": values})


def first_token(folder: ModelFolder, machine: Machine) -> int | None:
    engine = load_model(settings(folder, machine)).engine
    assert (engine.info.name, engine.info.device, engine.info.num_slots) == ("tensorrt", "gpu", 3)
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


@pytest.mark.parametrize(
    ("free_bytes", "event", "said"),
    [(1 << 30, "memory_left", "'free_mib': 1024"), (4_000, "memory_reserve_short", "0 MiB are free after loading")],
)
def test_what_loading_leaves_is_held_against_the_plans_reserve(
    slots_folder: ModelFolder, machine: Machine, free_bytes: int, event: str, said: str
) -> None:
    machine.cuda.free_bytes = free_bytes
    with capture_logs() as lines:
        load_model(settings(slots_folder, machine)).engine.close()
    (line,) = [line for line in lines if line["event"] == event]
    assert said in str(line)


def profiled(folder: ModelFolder, machine: Machine, trace: Path) -> str:
    options = ProfileOptions(batch=1, prompt_tokens=4, prefills=1, steps=2, trace=trace)
    return profile(settings(folder, machine), options)


def test_its_layers_are_timed_where_a_profile_is_asked_for(
    slots_folder: ModelFolder, machine: Machine, tmp_path: Path
) -> None:
    """One behind the other, those of each call; no step is recorded."""
    trace = tmp_path / "trace.json"
    assert profiled(slots_folder, machine, trace).startswith("tensorrt, tiny fp16: batch 1, 3 prefills of 4 tokens")
    events = msgspec.json.decode(trace.read_bytes())["traceEvents"]
    assert [(event["name"], event["ts"], event["dur"]) for event in events[-2:]] == [
        ("layers.1.mlp.down_proj.out", 4_500.0, 250.0),
        ("__myl_AddCast", 4_750.0, 500.0),
    ]
    assert len(events) == (3 + 4) * 2
    assert (machine.cuda.launches, machine.cuda.live) == (0, 0)


@pytest.mark.parametrize(("sm", "taken"), [("sm_75", False), ("sm_86", False), ("sm_89", True), ("sm_120", True)])
def test_a_model_in_fp8_is_for_gpus_that_have_it(slots_folder: ModelFolder, sm: str, taken: bool) -> None:
    manifest = msgspec.structs.replace(slots_folder.manifest, precision="fp8-mlp")
    reason = unmet(manifest, sm)
    refusal = (
        f"the model's MLP is FP8, for sm_89 and later, the GPU is {sm}; "
        "run: replyline optimize quantize --mlp int8 --calibration FILE --out FOLDER"
    )
    assert reason == (None if taken else refusal)
    assert unmet(slots_folder.manifest, sm) is None


@pytest.mark.parametrize("rejects", [0, 1])
def test_a_plan_that_is_damaged_or_ends_another_process_is_built_again(
    slots_folder: ModelFolder, machine: Machine, rejects: int
) -> None:
    token = first_token(slots_folder, machine)
    [decoder] = machine.plans.glob("tiny-fp16-*.plan")
    machine.rejects = rejects
    if not rejects:
        decoder.write_bytes(decoder.read_bytes()[:-10] + bytes(10))
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
    with pytest.raises(EngineError, match="cannot create an execution"):
        load_model(settings(slots_folder, machine))
    assert machine.cuda.live == 0
