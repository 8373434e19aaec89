"""If TensorRT's libraries crash the process that probes them, the caller gets one line."""

import sys
from pathlib import Path

import pytest

from ops.model.prepare import prepare_model
from shared.errors import ModelError, SettingsError
from shared.model.folder import ModelFolder
from shared.settings import Settings
from workers.engine.load_model import load_model
from workers.engine.tensorrt import build as tensorrt_build
from workers.engine.tensorrt import load_tensorrt as tensorrt_loading
from workers.engine.tensorrt.build import BuildPhases, import_library
from workers.engine.tensorrt.probe import DeviceFacts, probe
from workers.engine.unusable import Unusable

MAX_LENGTH = 96
FACTS = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=1 << 30, total_bytes=1 << 31, version="10.15.1")


@pytest.fixture(scope="module")
def cpu_folder(tmp_path_factory: pytest.TempPathFactory, tiny_source: Path) -> ModelFolder:
    return prepare_model(tmp_path_factory.mktemp("models"), "int8", source=tiny_source)


@pytest.fixture(scope="module")
def slots_folder(cpu_folder: ModelFolder, tiny_source: Path) -> ModelFolder:
    """The same model for TensorRT, next to the other."""
    return prepare_model(cpu_folder.path.parent, "fp16", source=tiny_source, max_length=MAX_LENGTH)


def planted(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


def reason(found: DeviceFacts | Unusable) -> str:
    assert isinstance(found, Unusable)
    assert "\n" not in found.reason
    return found.reason


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "ended its process by SIGSEGV"),
        ("import os; os.abort()", "ended its process by SIGABRT"),
        ("raise RuntimeError('no such symbol')", "RuntimeError: no such symbol"),
        ("print('[TRT] a banner'); raise SystemExit(0)", "cannot be probed (it said nothing)"),
    ],
)
def test_a_library_that_ends_the_process_is_a_line(code: str, said: str) -> None:
    assert said in reason(probe("tensorrt", program=planted(code)))


def test_a_library_that_hangs_is_a_line() -> None:
    found = probe("tensorrt", program=planted("import time; time.sleep(60)"), timeout_s=0.3)
    assert "did not answer for 0.3 s" in reason(found)


def test_a_program_that_is_not_there_is_a_line(tmp_path: Path) -> None:
    assert "No such file" in reason(probe("tensorrt", program=(str(tmp_path / "none"),)))


def test_the_result_is_returned_whatever_was_printed_before() -> None:
    code = (
        "import sys, msgspec; from workers.engine.tensorrt.probe import DeviceFacts; print('a banner');"
        "facts = DeviceFacts(device='a GPU', sm='sm_90', free_bytes=1 << 30, total_bytes=1 << 31, version='10.15.1');"
        "print(msgspec.json.encode(facts).decode())"
    )
    assert probe("tensorrt", program=planted(code)) == FACTS


def tensorrt_settings(folder: ModelFolder, tmp_path: Path, **worker: object) -> Settings:
    values = {"engine": "tensorrt", "slots": 2, "max_length": MAX_LENGTH, "cache_dir": tmp_path, **worker}
    return Settings.model_validate({"model": {"dir": folder.path}, "worker": values})


def unusable(_library: str, _plan: Path | None = None) -> Unusable:
    return Unusable("no CUDA driver on this machine; install NVIDIA's driver")


def test_without_a_gpu_the_worker_says_so_and_stops(
    slots_folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_loading, "probe", unusable)
    with pytest.raises(SettingsError, match=r"^REPLYLINE_WORKER__ENGINE=tensorrt: no CUDA driver on this machine"):
        load_model(tensorrt_settings(slots_folder, tmp_path))


def test_the_fallback_serves_the_same_model_on_the_cpu(
    slots_folder: ModelFolder, cpu_folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tensorrt_loading, "probe", unusable)
    model = load_model(tensorrt_settings(slots_folder, tmp_path, fallback_engine="onnx", threads=1))
    assert (model.engine.info.name, model.engine.info.revision) == ("onnx", cpu_folder.manifest.revision)
    model.engine.close()


def test_memory_that_is_too_little_is_refused_before_it_is_taken(
    slots_folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = DeviceFacts(device="a GPU", sm="sm_90", free_bytes=700_000, total_bytes=1 << 31, version="10.15.1")
    monkeypatch.setattr(tensorrt_loading, "probe", lambda _library: small)
    with pytest.raises(
        SettingsError, match=r"SLOTS=64: a GPU needs \d+ of 1 MiB: .*; lower REPLYLINE_WORKER__SLOTS to"
    ):
        load_model(tensorrt_settings(slots_folder, tmp_path, slots=64, prefill_chunk_tokens=8))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"max_length": 104}, "WORKER__MAX_LENGTH=104: the graph's slots hold 103 tokens"),
        ({"engine": "onnx"}, "its graph is for TensorRT; run: replyline model prepare --precision int8"),
    ],
)
def test_a_folder_that_does_not_do_is_named(
    slots_folder: ModelFolder, tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        load_model(tensorrt_settings(slots_folder, tmp_path, **settings))


def test_the_cpus_folder_is_not_for_a_gpu(cpu_folder: ModelFolder, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"its graph is not for TensorRT; run: replyline model prepare --precision"):
        load_model(tensorrt_settings(cpu_folder, tmp_path))


def test_a_library_that_is_not_installed_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(tensorrt_build._MODULES, "tensorrt", ("no_such_wheel", "no_such_bindings"))
    with pytest.raises(ModelError, match=r"tensorrt is not installed .*pip install 'replyline\[tensorrt\]'"):
        import_library("tensorrt")


def test_progress_is_that_of_the_outermost_phase() -> None:
    """Nested phases move it by their share of the step that they are."""
    phases = BuildPhases()
    phases.start("Building", None, 2)
    phases.start("Tactics", "Building", 4)
    assert phases.step("Tactics", 0) == ("Building", 0.125)
    assert phases.step("Tactics", 3) == ("Building", 0.5)
    phases.finish("Tactics")
    assert phases.step("Building", 0) == ("Building", 0.5)
    phases.start("Formats", "Building", 1)
    assert phases.step("Formats", 0) == ("Building", 1.0)
    phases.finish("Formats")
    assert phases.step("Building", 1) == ("Building", 1.0)
    assert phases.step("never started", 0) == ("never started", 1.0)
