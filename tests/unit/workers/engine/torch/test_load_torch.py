"""The engine of torch without torch: what is missing is one line, before anything is taken."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ops.model.prepare import prepare_model
from ops.operate.doctor.engine_facts import engine_facts
from shared.errors import SettingsError
from shared.settings import Settings
from workers.engine.load_model import load_model
from workers.engine.tensorrt.probe import DeviceFacts
from workers.engine.torch.load_torch import find_gpu


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory, tiny_source: Path) -> Path:
    directory = tmp_path_factory.mktemp("models")
    for precision in ("int8", "fp32"):
        prepare_model(directory, precision, source=tiny_source)
    return directory


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)


def with_torch(
    monkeypatch: pytest.MonkeyPatch, *, built_for: str | None = "13.2", free_bytes: int | None = None
) -> None:
    """Return a torch that finds a GPU with this much free memory, or no GPU."""
    cuda = SimpleNamespace(
        is_available=lambda: free_bytes is not None,
        mem_get_info=lambda _index: (free_bytes, 1 << 34),
        get_device_capability=lambda _index: (9, 0),
        get_device_name=lambda _index: "a GPU",
    )
    module: Any = SimpleNamespace(__version__="2.15.0", version=SimpleNamespace(cuda=built_for), cuda=cuda)
    monkeypatch.setitem(sys.modules, "torch", module)


def settings(models: Path, precision: str = "fp32", **worker: object) -> Settings:
    values = {"engine": "torch", "slots": 4, "max_length": 96, "threads": 1, **worker}
    return Settings.model_validate({"model": {"dir": models / f"tiny-{precision}"}, "worker": values})


@pytest.mark.usefixtures("without_torch")
def test_without_torch_the_worker_says_what_to_install(models: Path) -> None:
    with pytest.raises(SettingsError) as caught:
        load_model(settings(models))
    assert str(caught.value) == (
        "REPLYLINE_WORKER__ENGINE=torch: torch is not installed; run: pip install 'replyline[torch]'"
    )


@pytest.mark.parametrize(
    ("built_for", "said"), [(None, "was built without CUDA"), ("13.2", "no CUDA driver or no GPU")]
)
def test_a_gpu_that_is_asked_for_and_absent_is_one_line(
    models: Path, built_for: str | None, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_torch(monkeypatch, built_for=built_for)
    with pytest.raises(SettingsError, match=rf"ENGINE=torch: torch 2\.15\.0 .*{said}.*TORCH_DEVICE=cpu"):
        load_model(settings(models, torch_device="cuda"))
    assert find_gpu("auto") is find_gpu("cpu") is None


def test_memory_of_a_gpu_that_is_too_little_is_refused_before_it_is_taken(
    models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_torch(monkeypatch, free_bytes=2_000_000)
    with pytest.raises(SettingsError, match=r"SLOTS=64: a GPU needs \d+ of 2 MiB: .*; lower REPLYLINE_WORKER__SLOTS"):
        load_model(settings(models, slots=64, prefill_chunk_tokens=8))


@pytest.mark.parametrize(
    ("precision", "worker", "said"),
    [
        ("int8", {}, r"tiny-int8: torch computes fp32, .*, not int8; run: replyline model prepare --precision"),
        ("fp32", {"max_length": 257}, r"WORKER__MAX_LENGTH=257: tiny has 256 positions"),
    ],
)
@pytest.mark.usefixtures("without_torch")
def test_a_folder_that_does_not_do_is_named_before_torch_is_looked_for(
    models: Path, precision: str, worker: dict[str, object], said: str
) -> None:
    with pytest.raises(SettingsError, match=said):
        load_model(settings(models, precision, **worker))


@pytest.mark.parametrize("free_bytes", [None, 9 << 30], ids=["cpu", "gpu"])
def test_the_doctor_shows_the_plan_of_the_device(
    models: Path, free_bytes: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_torch(monkeypatch, free_bytes=free_bytes)
    facts = engine_facts(settings(models))
    assert isinstance(facts.gpu, DeviceFacts) == (free_bytes is not None)
    assert facts.memory is not None
    assert facts.memory.num_slots == 4
    if free_bytes is not None:
        assert facts.memory.available_bytes == free_bytes
