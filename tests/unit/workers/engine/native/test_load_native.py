"""The worker's engine is native if possible; otherwise onnx, with one line that gives the reason and the remedy."""

import dataclasses
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from ops.model.prepare import prepare_model
from shared.errors import EngineError, ModelError, SettingsError
from shared.model.folder import NATIVE, ModelFolder, file_entry, write_manifest
from shared.settings import Settings
from tests.support.models.native_library import native_dir, native_library
from workers.engine.load_model import LoadedModel, load_model
from workers.engine.memory_plan import cpu_memory_plan
from workers.engine.native import load_native
from workers.engine.native.build import LIBRARY, Recipe
from workers.engine.native.library import Library
from workers.serving.calibration import costs_key


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory, tiny_source: Path) -> ModelFolder:
    return prepare_model(tmp_path_factory.mktemp("models"), "int8", source=tiny_source)


@pytest.fixture
def folder(tmp_path: Path, prepared: ModelFolder) -> ModelFolder:
    """One that a test may spoil."""
    shutil.copytree(prepared.path, tmp_path / "model")
    return ModelFolder.open(tmp_path / "model")


def settings_of(folder: ModelFolder, **worker: object) -> Settings:
    values = {"engine": "native", "native_dir": native_dir(), "slots": 2, "max_length": 96, "threads": 1}
    return Settings.model_validate({"model": {"dir": folder.path}, "worker": values | worker})


def loaded(settings: Settings) -> tuple[LoadedModel, list[Any]]:
    """The model, and each warning that the next engine serves."""
    with capture_logs() as lines:
        model = load_model(settings)
    model.engine.close()
    return model, [line for line in lines if line["event"] == "engine_unusable"]


def rewritten(folder: ModelFolder, change: Callable[[bytes], bytes]) -> None:
    """A folder whose packed weights are others, as its manifest says."""
    path = folder.path / NATIVE
    path.write_bytes(change(path.read_bytes()))
    files = tuple(file_entry(path) if each.name == NATIVE else each for each in folder.manifest.files)
    write_manifest(folder.path, msgspec.structs.replace(folder.manifest, files=files))


def without_weights(folder: ModelFolder) -> None:
    files = tuple(each for each in folder.manifest.files if each.name != NATIVE)
    write_manifest(folder.path, msgspec.structs.replace(folder.manifest, files=files))


def test_the_native_engine_serves_and_names_its_kernel(prepared: ModelFolder) -> None:
    model, warnings = loaded(settings_of(prepared))
    assert (model.info.name, warnings) == ("native", [])
    assert model.info.computed_by == f"native {model.info.kernel}"
    assert model.info.kernel in Recipe().kernels


def test_every_kernel_of_the_library_that_runs_here_can_be_asked_for(prepared: ModelFolder) -> None:
    library = native_library()
    for kernel in library.kernels:
        model, warnings = loaded(settings_of(prepared, native_kernel=kernel))
        assert (model.info.kernel, warnings) == (kernel, [])


def test_the_kernels_that_run_here_are_those_whose_instructions_the_system_lists() -> None:
    flags = set(re.findall(r"^(?:flags|Features)\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)[0].split())
    avx512 = {"avx2", "fma", "f16c", "avx512f", "avx512bw", "avx512dq", "avx512vl", "avx512_vnni"}
    needs = {
        "avx512-bf16": {*avx512, "avx512_bf16"},
        "avx512-vnni": avx512,
        "avx-vnni": {"avx2", "fma", "f16c", "avx_vnni"},
        "avx2": {"avx2", "fma", "f16c"},
        "neon": {"asimddp"},
        "portable": set[str](),
    }
    assert native_library().kernels == tuple(name for name in Recipe().kernels if needs[name] <= flags)


def test_the_costs_of_another_kernel_are_measured_again(prepared: ModelFolder) -> None:
    info = loaded(settings_of(prepared))[0].info
    other = dataclasses.replace(info, kernel="another")
    assert costs_key(info, threads=1) != costs_key(other, threads=1)


@pytest.mark.parametrize(
    ("worker", "spoil", "reason"),
    [
        ({"native_dir": "nowhere"}, None, "it was not built in nowhere; run: replyline model prepare"),
        ({"native_kernel": "neon"}, None, "REPLYLINE_WORKER__NATIVE_KERNEL=neon: this machine can run auto, "),
        ({}, without_weights, f"has no {NATIVE}; run: replyline model prepare"),
        (
            {},
            lambda folder: rewritten(folder, lambda data: data[:8] + b"\x63" + data[9:]),
            "run: replyline model prepare",
        ),
        ({}, lambda folder: rewritten(folder, lambda data: data[: len(data) // 2]), "run: replyline model prepare"),
    ],
    ids=["never built", "another CPU's kernel", "no packed weights", "another layout", "half"],
)
def test_without_the_native_engine_onnx_serves_and_one_line_gives_the_reason(
    folder: ModelFolder, worker: dict[str, object], spoil: Callable[[ModelFolder], None] | None, reason: str
) -> None:
    if worker.get("native_kernel") in Recipe().kernels:
        worker = {"native_kernel": "avx2"}
        reason = reason.replace("neon", "avx2")
    if spoil is not None:
        spoil(folder)
    model, [warning] = loaded(settings_of(folder, **worker))
    assert (model.info.name, warning["engine"], warning["instead"]) == ("onnx", "native", "onnx")
    assert reason in warning["reason"]
    assert "\n" not in warning["reason"]


def test_a_damaged_library_is_not_loaded(folder: ModelFolder, tmp_path: Path) -> None:
    """Whose code would end the process, or worse."""
    directory = tmp_path / "native"
    shutil.copytree(native_dir(), directory)
    library = Recipe().folder(directory) / LIBRARY
    library.write_bytes(library.read_bytes()[:-64])
    model, [warning] = loaded(settings_of(folder, native_dir=directory))
    assert (model.info.name, warning["reason"]) == (
        "onnx",
        f"{library} is not what was built; run: replyline model prepare",
    )


def test_a_cpu_without_a_fast_kernel_is_onnxs(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless the portable one is asked for."""
    load = Library.load
    monkeypatch.setattr(Library, "load", lambda path, kernel: dataclasses.replace(load(path), kernel="portable"))
    _, [warning] = loaded(settings_of(folder))
    assert warning["reason"].startswith("this CPU has no instructions for ")
    assert warning["reason"].endswith("; set REPLYLINE_WORKER__ENGINE=onnx")


def test_less_memory_than_planned_is_onnxs(folder: ModelFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    said = "the native engine cannot start (Cannot allocate memory); lower REPLYLINE_WORKER__SLOTS"

    def refuse(*_: object, **__: object) -> None:
        raise EngineError(said)

    monkeypatch.setattr(load_native, "NativeEngine", refuse)
    _, [warning] = loaded(settings_of(folder))
    assert warning["reason"] == said


def test_a_folder_of_packed_weights_alone_is_for_no_other_engine(folder: ModelFolder) -> None:
    write_manifest(folder.path, msgspec.structs.replace(folder.manifest, dialect="native"))
    assert loaded(settings_of(folder))[0].info.name == "native"
    with pytest.raises(ModelError, match=r"is only for the native engine: it was not built in nowhere; run: replyline"):
        load_model(settings_of(folder, native_dir="nowhere"))
    with pytest.raises(SettingsError, match=r"MODEL__DIR=.*: its weights are for engine=native; run: replyline model"):
        load_model(settings_of(folder, engine="onnx"))


def test_a_kernel_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match=r"'avx512-bf16', 'avx512-vnni', 'avx-vnni', 'avx2', 'neon' or 'portable'"):
        Settings.model_validate({"worker": {"native_kernel": "sse"}})


def test_the_memory_plan_is_of_the_engine_that_is_set(prepared: ModelFolder) -> None:
    """KV of bfloat16 is half of float32's."""
    native, onnx = (
        cpu_memory_plan(settings_of(prepared, engine=name).worker, prepared.manifest, 1 << 30)
        for name in ("native", "onnx")
    )
    assert native.slot_bytes * 2 == onnx.slot_bytes
    assert native.weights_bytes == (prepared.path / NATIVE).stat().st_size
